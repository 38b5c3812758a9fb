"""Seeded mutations of bytes, text and JSON. Every mutated file must be accepted or refused with one
line, in bounded time and memory."""

from __future__ import annotations

import copy
import faulthandler
import json
import re
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from lora_host.errors import LoraError

MAX_MESSAGE = 500
MAX_SECONDS = 5.0
"""Limit per file, far above normal times, so that no test fails on a busy machine."""
MAX_BYTES = 1 << 30
MAX_SECONDS_IN_C = 120.0
"""Then the process is ended with a traceback: C code cannot be stopped otherwise."""

_WORDS = (
    "", "-1", "0", "1", "255", "65536", "4294967296", "-9223372036854775809", "9" * 40, "9" * 5000,
    "-" + "9" * 5000, "0x", "0x" + "f" * 40, "0x" + "f" * 5000, "0b2", "1_0", "_", "1.5", "-0.0",
    "1e999", "1e-999", ".nan", ".inf", "-.Inf", "NaN", "Infinity", "1.2.3", "._", "+.e+",
    "12:61:61", "1:", "2020-13-45", "2020-01-01T99:99:99Z", "2001-1-1 1:1:1 +99:99", "true", "no",
    "~", "null", "!!int x", "!!int ''", "!!float ''", "!!float '-'", "!!timestamp x", "!!bool x",
    "!!binary x", "!!set {a}", "!!omap [a]", "!!pairs [a]", "!!python/object/apply:os.getcwd []",
    "!!merge x", "&a", "*a", "&a [*a, *a]", "&a {a: *a}", "<<", "<<: 1", "? ", "|", ">",
    "%YAML 9.9", "---", "...", "- ", "[", "]", "{", "}", "[" * 3000, "{a: " * 2000, "'", '"', "\\",
    "\t", "\0", "\x1b", "\u2028", "\ufeff", "\u0661", "\u00b2", "\u00e9", "\U0001f600",
    "a" * 70_000, "..", "/etc/passwd", "a/b", "utf-16", "utf-7", "hex", "idna", "undefined",
    "no-such-code", "<!DOCTYPE a>", "<a>", "]]>",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308,
    float("inf"), float("nan"), "", "a", "\0", "\ud800", "\u2028", "0", "1e3", "a" * 70_000,
    "(" * 50, "(a+)+$", "../a", "/dev/zero", [], [[]], {}, {"a": 1}, [None], [0], [-1], ["a"],
    [1, 2, 3], {"": None},
)  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z_][\w-]*|[-+]?\d[\w.+-]*|[^\w\s]|\n\s*")


def damaged(random: Random, data: bytes) -> bytes:
    """One to four changes: bits, bytes, edge values of 1 to 8 bytes, runs cut out or doubled."""
    content = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        start = random.randrange(len(content) + 1)
        run = min(random.choice((1, 2, 4, 8, 16, 200, len(content))), len(content) - start)
        match random.randrange(7):
            case 0 | 1 if start < len(content):
                content[start] ^= 1 << random.randrange(8)
            case 2 if start < len(content):
                content[start] = random.choice((0, 1, 0x20, 0x7F, 0x80, 0xFF))
            case 3:
                word = random.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 2**63, 2**64 - 1)
                )
                width = random.choice((1, 2, 4, 8))
                content[start : start + width] = word.to_bytes(8, "little")[:width]
            case 4:
                del content[start : start + run]
            case 5:
                content[start:start] = content[start : start + run]
            case _:
                content[start : start + run] = random.randbytes(run)
    return bytes(content)


def rewritten(random: Random, text: str) -> str:
    """One to three of its words replaced, dropped, doubled, or swapped with another."""
    for _ in range(random.choice((1, 1, 2, 3))):
        places = [found.span() for found in _TOKEN.finditer(text)]
        if not places:
            break
        start, end = random.choice(places)
        word = text[start:end]
        other_start, other_end = random.choice(places)
        new = random.choice(
            (
                random.choice(_WORDS),
                random.choice(_WORDS),
                word + random.choice(_WORDS),
                random.choice(_WORDS) + word,
                "",
                word + " " + word,
                text[other_start:other_end],
            )
        )
        text = text[:start] + new + text[end:]
    return text


def revalued(random: Random, value: Any) -> Any:
    """A copy in which one to three values are replaced, dropped, renamed, wrapped or moved."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        holder, key = random.choice(places)
        match random.randrange(8):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(("", "a", "\0", "a" * 700, str(key) + " "))] = holder.pop(key)
            case 2:
                holder[key] = [holder[key]]
            case 3:
                other, there = random.choice(places)
                holder[key] = copy.deepcopy(other[there])
            case 4 if isinstance(holder[key], int | float) and abs(holder[key]) < 1 << 64:
                holder[key] = holder[key] * random.choice((-1, 2, 0.5, 1 << 20))
            case _:
                holder[key] = copy.deepcopy(random.choice(_VALUES))
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def as_json(random: Random, value: Any) -> bytes:
    """JSON of a mutated value; or a mutated text of the value's JSON."""
    if random.random() < 0.7:
        return json.dumps(revalued(random, value)).encode("utf-8", "surrogatepass")
    text = json.dumps(value)
    if random.random() < 0.7:
        return rewritten(random, text).encode("utf-8", "surrogatepass")
    return damaged(random, text.encode())


@dataclass
class Subject:
    """A file that is mutated: `mutate` gives its bytes, `read` reads it as the product does and
    `close` frees what that takes."""

    path: Path
    mutate: Callable[[Random], bytes]
    read: Callable[[], object]
    close: Callable[[], None] = lambda: None


@dataclass
class Outcome:
    """Result of a campaign. `faults`: mutations that were not refused with one line."""

    taken: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds.most_common())
        return f"{self.taken} taken, {self.refused} refused, {len(self.faults)} faults: {kinds}"


class Late(BaseException):
    """A file took longer than MAX_SECONDS."""


def campaign(name: str, subject: Subject, count: int) -> Outcome:
    """Mutations `name` 0 .. count - 1, each from a seed of its own, so that one can be repeated."""
    with memory_limit():
        return _campaign(name, subject, count)


def _campaign(name: str, subject: Subject, count: int) -> Outcome:
    outcome = Outcome()
    for index in range(count):
        data = subject.mutate(Random(f"{name} {index}"))
        subject.path.write_bytes(data)
        try:
            with time_limit():
                subject.read()
            outcome.taken += 1
        except LoraError as error:
            outcome.refused += 1
            _check_message(outcome, index, str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            _fault(outcome, index, type(error).__name__, f"{error} ({last.filename}:{last.lineno})")
    return outcome


def _check_message(outcome: Outcome, index: int, text: str) -> None:
    if len(text) > MAX_MESSAGE:
        _fault(outcome, index, "long message", text)
    elif not text.strip() or len(text.splitlines()) > 1 or not text.isprintable():
        _fault(outcome, index, "no one line", repr(text))


def _fault(outcome: Outcome, index: int, kind: str, text: str) -> None:
    outcome.kinds[kind] += 1
    outcome.faults.append(f"{index}: {kind}: {text[:300]}")


@contextmanager
def memory_limit(size: int = MAX_BYTES) -> Any:
    """What asks for `size` bytes more than the process holds now gets a MemoryError."""
    text = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1]) << 10 for line in text.splitlines() if "VmData" in line)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def time_limit(seconds: float | None = None) -> Any:
    """Late if what it holds takes longer, MAX_SECONDS if not given."""
    limit = MAX_SECONDS if seconds is None else seconds

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Late(f"{limit} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    faulthandler.dump_traceback_later(MAX_SECONDS_IN_C, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
