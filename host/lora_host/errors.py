"""All errors of the project, one class per source of failure. A message is one line: the subject,
what was found, what was expected, what to do."""

from __future__ import annotations

from dataclasses import dataclass

from lora_host.locale_text import utf8_text

MAX_MESSAGE = 500
NO_UNIT = "none"


def one_line(text: object) -> str:
    """`text` as one printable line of at most MAX_MESSAGE characters; the middle of a longer text
    is cut out. Messages quote file contents, which may have any length and any characters."""
    line = " ".join(utf8_text(str(text)).split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    if len(line) <= MAX_MESSAGE:
        return line
    head = MAX_MESSAGE * 2 // 3
    return f"{line[:head]} ... {line[head + 5 - MAX_MESSAGE :]}"


@dataclass(frozen=True)
class FailureFields:
    """Fields of `struct lora_failure`; None if a field does not apply. Sizes are in bytes."""

    code: int
    status: str
    board: int | None = None
    bank: int | None = None
    port: int | None = None
    peer_board: int | None = None
    peer_port: int | None = None
    index: int | None = None
    opcode: int | None = None
    unit: int | None = None
    counter: int | None = None
    row: int | None = None
    found: int | None = None
    expected: int | None = None
    offset: int | None = None
    requested: int | None = None
    available: int | None = None
    capacity: int | None = None
    unit_name: str | None = None
    """The unit in words; NO_UNIT where a board failed and no unit of it did."""


class LoraError(Exception):
    """Base of all errors; its text is passed through `one_line`. `failure`: the C library's fields
    if it raised the error. `report`: text of the board state captured with it, or "". `usage`:
    whether an argument is wrong, and not the content of a file that it names, or the work."""

    usage = False

    def __init__(
        self,
        message: str,
        *,
        failure: FailureFields | None = None,
        report: str = "",
        usage: bool | None = None,
    ) -> None:
        super().__init__(one_line(message))
        self.failure = failure
        self.report = report
        if usage is not None:
            self.usage = usage


class OverlayError(LoraError):
    """Manifest, firmware image, board and ABI do not match."""


class TransportError(LoraError):
    """A board, its runtime or its driver failed."""


class HangError(TransportError):
    """A run timed out. The cluster refuses all work until it is reset."""


class LinkError(LoraError):
    """A link is down, delivers wrong bytes, or differs from the cabling map."""


class PlacementError(LoraError):
    """Data does not fit in memory, or lies outside the reserved ranges."""


class CommandError(LoraError):
    """The firmware refused a command list or a step. `index`, `opcode` and `address` (bank, byte
    offset) identify the command; None if no command is involved."""

    def __init__(
        self, message: str, *, failure: FailureFields | None = None, report: str = ""
    ) -> None:
        super().__init__(message, failure=failure, report=report)
        self.index = failure.index if failure else None
        self.opcode = failure.opcode if failure else None
        self.address: tuple[int, int] | None = None
        if failure and failure.bank is not None and failure.offset is not None:
            self.address = (failure.bank, failure.offset)


class ModelError(LoraError):
    """A checkpoint, a configuration or a value computed from them cannot be used. `row`: index in
    the step of the row that the value belongs to; None if no row is involved."""

    def __init__(
        self,
        message: str,
        *,
        failure: FailureFields | None = None,
        report: str = "",
        usage: bool | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(message, failure=failure, report=report, usage=usage)
        self.row = failure.row if failure else row


class AdapterError(LoraError):
    """An adapter cannot be loaded or used."""


class RequestError(LoraError):
    """A bad argument of a user's call."""

    usage = True


class RowsLostError(LoraError):
    """Uncommitted rows went with the boards' memory when boards were recovered. What their sequence
    has committed is computed again."""
