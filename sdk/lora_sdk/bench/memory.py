"""How fast this machine reads memory, and copies files from the page cache into fresh pages."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from lora_host import native
from lora_host.errors import RequestError, TransportError
from lora_sdk.bench.page_reporting import wait_for_report

MOST_BYTES = 1 << 30  # of the buffer: further ones tell nothing new, and the model needs the memory
LEAST_READ = 256 << 20  # a reading of less is over before the clock says anything
LEAST_SETTLED = 1 << 30  # fewer pages are touched before a report is likely to come between


class ReadBuffer:
    """Memory in huge pages, as emulated banks have it, of the bytes that a token reads (1 GiB at
    most). A context manager."""

    def __init__(self, bytes: int, most: int = MOST_BYTES) -> None:
        """TransportError where the system has no memory."""
        self.bytes = max(1 << 16, min(bytes, most))
        self._memory = native.lib().lora_bench_buffer(self.bytes)
        if self._memory == native.ffi().NULL:
            raise TransportError(f"no memory for a buffer of {self.bytes >> 20} MiB to read")

    def bandwidth(self, threads: int) -> dict[str, float]:
        """Bytes a second by reader variant that this machine can run, each once over the buffer
        (small ones several times)."""
        lib, ffi = native.lib(), native.ffi()
        passes = -(-LEAST_READ // self.bytes)
        found: dict[str, float] = {}
        for index in range(_readers()):
            if lib.lora_bench_reader_supported(index):
                took = lib.lora_bench_read(self._memory, self.bytes, threads, passes, index)
                name = ffi.string(lib.lora_bench_reader(index)).decode()
                found[name] = self.bytes * passes / _seconds(took, threads)
        return found

    def close(self) -> None:
        """Gives the memory back."""
        native.lib().lora_bench_free(self._memory, self.bytes)
        self._memory = native.ffi().NULL

    def __enter__(self) -> ReadBuffer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def copy_bandwidth(files: Sequence[Path], threads: int) -> float:
    """Bytes a second of memcpy from mapped files into fresh huge pages: the yardstick of loading.
    `read_files` comes before: what is not in the page cache is the disk's speed."""
    total, seconds = 0, 0.0
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = np.frombuffer(data, np.uint8)
            source = native.ffi().from_buffer(view)
            WarmPages(len(view)).release()
            seconds += _seconds(native.lib().lora_bench_copy(source, len(view), threads), threads)
            total += len(view)
            native.ffi().release(source)
            del source, view  # the map cannot be closed before
    return total / seconds


def read_files(files: Sequence[Path]) -> None:
    """Brings files into the page cache."""
    part = memoryview(bytearray(1 << 20))
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(part):
                pass


class WarmPages:
    """Pages of the machine's for what needs fresh ones next. A virtual machine gives its free pages
    back to the host within seconds, and such a page's first touch takes ten times what clearing it
    does: whichever is measured later, loading or copying, would look better by that. Held from now
    until `release`, which comes just before the clock starts, or `close`; closing twice is no
    error."""

    def __init__(self, bytes: int) -> None:
        """TransportError where the system has no memory."""
        self._buffer: ReadBuffer | None = ReadBuffer(bytes, most=bytes)

    def release(self) -> None:
        """Frees the pages when those that others freed before are reported: a report in the midst
        of what is measured would take these as well. Of less than 1 GiB at once."""
        if self._buffer is not None and self._buffer.bytes >= LEAST_SETTLED:
            wait_for_report()
        self.close()

    def close(self) -> None:
        """Frees the pages."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None


@contextmanager
def bound_threads(threads: int | None) -> Iterator[int]:
    """Binds this process to `threads` of its cores, for kernels, loading and reading alike, and
    gives their number; None for all. RequestError where there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    count = len(cores) if threads is None else threads
    if not 1 <= count <= len(cores):
        raise RequestError(f"{threads} threads; expected 1..{len(cores)}, the process's cores")
    os.sched_setaffinity(0, cores[:count])
    try:
        yield count
    finally:
        os.sched_setaffinity(0, cores)


def _readers() -> int:
    count = 0
    while native.lib().lora_bench_reader(count) != native.ffi().NULL:
        count += 1
    return count


def _seconds(nanoseconds: int, threads: int) -> float:
    if not nanoseconds:
        raise TransportError(f"measuring memory on {threads} threads failed: no memory or threads")
    return nanoseconds * 1e-9
