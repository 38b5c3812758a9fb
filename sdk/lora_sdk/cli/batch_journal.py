"""The lines of a batch that have ended, kept beside the output until all have."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from lora_host.errors import RequestError
from lora_host.writing import writing

VERSION = 1
SUFFIX, NEW = ".partial", ".new"


class Journal:
    """`OUT.partial`: a line that says what is computed, then an entry for each line of the batch in
    the order of their ends. Each is written at once, so a killed program loses none but a part of
    the last; what was cut off there is dropped. A context manager: it holds the file's lock."""

    def __init__(self, out: Path, facts: Mapping[str, object], lines: int) -> None:
        """Begin, or go on where a program was ended. `facts`: by name, what decides the entries.
        RequestError: the output is complete already, another program writes it, or what is there is
        of another batch."""
        self._out = out
        self._lines = lines
        self.path = out.with_name(out.name + SUFFIX)
        if out.exists() and not self.path.exists():
            raise RequestError(f"{out} exists and is complete; remove it, or name another file")
        self._file = _opened(self.path)
        try:
            self._lock()
            self._known = self._read({"version": VERSION, **facts})
        except BaseException:
            with suppress(OSError):  # of a first line that the disk has no room for
                self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with writing(self.path):  # what could not be written before is tried again
            self._file.close()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, index: int) -> bool:
        return index in self._known

    def add(self, index: int, entry: Mapping[str, Any]) -> None:
        """Keep the entry of line `index`, the first one for ever."""
        if index in self._known:
            return
        with writing(self.path):
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(encoded(entry))
            self._file.flush()
        self._known[index] = start

    def finish(self) -> int:
        """Write the output in the order of the lines, at once, and remove the journal. The number
        of lines with an error."""
        with writing(self.path):
            os.fsync(self._file.fileno())
        failed = 0
        new = self._out.with_name(self._out.name + NEW)
        with writing(new), new.open("wb") as target:
            for index in range(self._lines):
                line = self._line(self._known[index])
                failed += "error" in json.loads(line)
                target.write(line)
            target.flush()
            os.fsync(target.fileno())
        new.replace(self._out)
        with suppress(FileNotFoundError):
            self.path.unlink()
        return failed

    def first_error(self) -> str | None:
        """The message of the first line that failed."""
        for index in sorted(self._known):
            entry = json.loads(self._line(self._known[index]))
            if "error" in entry:
                return f"line {entry['line']}: {entry['error']}"
        return None

    def _line(self, start: int) -> bytes:
        self._file.seek(start)
        return self._file.readline()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(
                f"{self.path} is written by another lora batch; wait for it, or name another file",
                usage=False,
            ) from None

    def _read(self, facts: Mapping[str, object]) -> dict[int, int]:
        """Where the entry of each line is. A new file gets its first line."""
        self._file.seek(0)
        first = self._file.readline()
        if not first.endswith(b"\n"):
            with writing(self.path):
                self._file.truncate(0)
                self._file.seek(0)
                self._file.write(encoded(facts))
                self._file.flush()
            return {}
        self._check(_parsed(first), json.loads(encoded(facts)))
        known: dict[int, int] = {}
        start = self._file.tell()
        while (line := self._file.readline()).endswith(b"\n"):
            entry = _parsed(line)
            index = entry.get("index") if isinstance(entry, dict) else None
            if type(index) is not int or not 0 <= index < self._lines or index in known:
                raise RequestError(
                    f"{self.path}, byte {start}: {line[:60]!r} is no entry of this batch; remove "
                    "the file to begin anew",
                    usage=False,
                )
            known[index] = start
            start = self._file.tell()
        self._file.truncate(start)
        return known

    def _check(self, found: object, facts: Mapping[str, object]) -> None:
        for name, value in facts.items():
            there = found.get(name) if isinstance(found, dict) else None
            if there != value:
                raise RequestError(
                    f"{self.path} was begun with another {name}: {there!r:.80}, now {value!r:.80}; "
                    "start with the same one, or remove the file to begin anew",
                    usage=False,
                )


def check_apart(prompts: Path, out: Path) -> None:
    """RequestError if the output, its journal or its new file is the file of the prompts."""
    for name in (out.name, out.name + SUFFIX, out.name + NEW):
        path = out.with_name(name)
        if prompts.exists() and path.exists() and path.samefile(prompts):
            raise RequestError(
                f"{path} holds the prompts, and results would be written there; name another OUT"
            )


def encoded(entry: Mapping[str, Any]) -> bytes:
    """A line as `lora-run --batch` writes it."""
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _opened(path: Path) -> BinaryIO:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(path, flags, 0o666), "r+b")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}", usage=False) from None
