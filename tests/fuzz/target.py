"""What a fuzzed parser is: bytes in, a refusal of the documented kind or none out, nothing left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lora_host.errors import MAX_MESSAGE, LoraError
from tests.mutations import Subject

MAX_SECONDS, SECONDS_A_MEGABYTE = 5.0, 3.0
"""Of processor time for one input, and more for a long one; usual ones take milliseconds."""

Mutate = Callable[[Random, bytes], bytes]


class Fault(Exception):
    """An input was neither taken nor refused as documented, or left something behind."""


def _nothing() -> None: ...


@dataclass
class Target:
    """`read` takes one input; a refusal is a LoraError or one of `refusals`. `seeds`: first inputs.
    `mutate`: a mutation that keeps the format's structure, if there is one. `folder`: where no file
    may be left, if there is one."""

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    mutate: Mutate | None = None
    close: Callable[[], None] = _nothing
    folder: Path | None = None
    refusals: tuple[type[Exception], ...] = ()
    _files: set[str] = field(default_factory=set)
    _descriptors: int = 0

    def settle(self) -> None:
        """Counts what is open and there now; to be called after a first input, since the first use
        of a library may open what it keeps."""
        self._descriptors = _open_descriptors()
        self._files = self._names()

    def run(self, data: bytes) -> bool:
        """Whether the input was taken; False if it was refused. Raises Fault, or what the product
        raised, for everything else."""
        began = time.process_time()
        taken = self._read(data)
        took = time.process_time() - began
        if took > (most := MAX_SECONDS + SECONDS_A_MEGABYTE * len(data) / 1e6):
            raise Fault(f"{took:.1f} s of processor time; at most {most:.1f} s expected")
        self._check_descriptors()
        if more := self._names() - self._files if self._descriptors else set():
            raise Fault(f"files left: {sorted(more)[:3]}")
        return taken

    def _check_descriptors(self) -> None:
        """A server's thread closes a connection some time after its end."""
        end = time.monotonic() + MAX_SECONDS
        while self._descriptors and (found := _open_descriptors()) > self._descriptors:
            if time.monotonic() > end:
                raise Fault(f"{found} open descriptors; {self._descriptors} expected")
            time.sleep(0.001)

    def _read(self, data: bytes) -> bool:
        try:
            self.read(data)
        except LoraError as error:
            check_message(str(error))
            return False
        except self.refusals:
            return False
        return True

    def _names(self) -> set[str]:
        return set(os.listdir(self.folder)) if self.folder is not None else set()


def check_message(text: str) -> None:
    """One line of at most MAX_MESSAGE printable characters; else Fault."""
    if len(text) > MAX_MESSAGE or not text.strip() or not text.isprintable():
        raise Fault(f"a message that is no printable line of {MAX_MESSAGE} characters: {text!r}")


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


TAKEN, REFUSED = 4, 8
"""First inputs of a file's target."""


def of_subject(subject: Subject, mutate: Mutate) -> Target:
    """A target that reads a file of the mutation tests."""

    def read(data: bytes) -> None:
        subject.path.write_bytes(data)
        subject.read()

    def either(random: Random, data: bytes) -> bytes:
        return subject.mutate(random) if random.random() < 0.2 else mutate(random, data)

    def seeds() -> list[bytes]:
        found: dict[bool, list[bytes]] = {True: [], False: []}
        for index in range(1000):
            data = subject.mutate(Random(f"seed {index}"))
            found[target.run(data)].append(data)
            if len(found[True]) >= TAKEN and len(found[False]) >= REFUSED:
                break
        return found[True][:TAKEN] + found[False][:REFUSED]

    target = Target(read, seeds, either, subject.close, subject.path.parent)
    return target
