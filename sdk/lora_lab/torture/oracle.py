"""How a run may end: with the undisturbed text, or with one error that names what was injected; in
time, and with nothing left behind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lora_host import abi
from lora_host.cluster_file import Cable
from lora_host.errors import FailureFields, LoraError, ModelError, PlacementError
from lora_lab.torture.faults import Fault, Run
from lora_lab.torture.kinds import Kind

SECONDS = 20.0
"""Of a run: ten times what the slowest has needed on a busy machine."""

EMPTIED = ("board leaves the bus", "board leaves and returns")
"""Faults after which a board's memory is lost."""


@dataclass
class Observed:
    """What a run did. `text`: None where it ended with `error`. `seen`: failures that were
    recovered from, or not. `repaired`: causes of recoveries. `left`: what was held afterwards and
    not before."""

    text: Any = None
    error: BaseException | None = None
    seen: list[LoraError] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    redone: int = 0
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    corrected: int = 0

    @property
    def noticed(self) -> bool:
        """Whether anything was found wrong."""
        return bool(self.error or self.seen or self.repaired or self.redone or self.corrected)


@dataclass(frozen=True)
class Judge:
    """Of one run. `trigger`: the fault that the campaign added to begin a recovery."""

    run: Run
    kinds: Mapping[str, Kind]
    cables: Sequence[Cable]
    ends_with_error: bool  # the phase has no recovery: opening, links, closing
    trigger: Fault | None = None

    def problems(self, observed: Observed, want: Any) -> list[str]:
        """What is wrong; empty: nothing."""
        found = [f"{left} left" for left in observed.left]
        if observed.seconds > SECONDS:
            found.append(f"took {observed.seconds:.1f} s, {SECONDS} s expected")
        if observed.error is not None:
            found += self._wrong_end(observed.error)
        elif observed.text != want and not self._is_hidden():
            found.append(f"text {str(observed.text)[:120]}, {str(want)[:120]} expected")
        found += [f"named wrongly: {error}" for error in observed.seen if not self._is_named(error)]
        found += [
            f"another bank has failed: {error}"
            for error in observed.seen
            if error.failure is not None
            and error.failure.code == abi.ERR_ECC
            and (error.failure.board, error.failure.bank) not in observed.unreadable
        ]
        found += [
            f"repaired without a cause: {cause}"
            for cause in observed.repaired
            if "CRC-32" in cause and not any(place in cause for place in observed.damaged)
        ]
        refused = any(one.failure and one.failure.code == abi.ERR_ROW for one in observed.seen)
        adapters = any("adapter" in fault.kind for fault in self._all)
        if adapters and refused and not any("adapter" in cause for cause in observed.repaired):
            found.append("a refused adapter was not named")
        if not observed.noticed and self._is_certain():
            found.append("not noticed")
        return found

    def _wrong_end(self, error: BaseException) -> list[str]:
        if not isinstance(error, LoraError):
            return [f"{type(error).__name__}: {error}"]
        if not self._is_named(error):
            return [f"error that names something else: {error}"]
        losses = sum(self._kind(one).loses for one in self._all)  # each of another board
        nothing_remains = self.run.boards <= max(1, losses) and isinstance(error, PlacementError)
        allowed = (
            self.ends_with_error
            or nothing_remains
            or any(self._kind(one).ends != "text" for one in self._all)
        )
        return [] if allowed else [f"error where a recovery was possible: {error}"]

    def _is_hidden(self) -> bool:
        """Whether weights may have been damaged on a board that then lost all of them: nothing is
        left to be found."""
        damaged = any(self._kind(one).ends != "text" for one in self._all)
        return damaged and any(one.kind in EMPTIED for one in self._all)

    def _is_certain(self) -> bool:
        """Whether one of the faults cannot pass unnoticed."""
        return len(self.run.faults) == 1 and self.run.phase in self._kind(self.run.faults[0]).sure

    @property
    def _all(self) -> tuple[Fault, ...]:
        return (*self.run.faults, *([self.trigger] if self.trigger else []))

    def _kind(self, fault: Fault) -> Kind:
        return self.kinds[fault.kind]

    def _is_named(self, error: LoraError) -> bool:
        """Whether one of the faults explains the error: its code, its board and its unit."""
        return any(self._explains(fault, error) for fault in self._all)

    def _explains(self, fault: Fault, error: LoraError) -> bool:
        kind, failure = self._kind(fault), error.failure
        if isinstance(error, ModelError) and "NAN" in kind.codes:
            return True  # values of other boards come from the damaged one's
        if failure is None:
            return kind.names != "nothing" and bool(
                re.search(rf"\bboard {fault.board}\b", str(error))
            )
        if failure.code not in kind.code_numbers:
            return False
        if kind.unit is not None and failure.unit not in (None, kind.unit):
            return False
        named = {failure.board, failure.peer_board} - {None}
        return not named or bool(named & self._boards(kind, fault, failure))

    def _boards(self, kind: Kind, fault: Fault, failure: FailureFields) -> set[int]:
        """Boards that an error may name: the fault's own, or the ends of its cables. Digests name
        who has received wrong bytes, also those that a neighbour has passed on."""
        boards = {fault.board}
        if kind.names == "cable":
            boards |= self._neighbours(boards)
            if failure.code == abi.ERR_GATHERED:
                boards |= self._neighbours(boards)
        return boards

    def _neighbours(self, boards: set[int]) -> set[int]:
        """The boards at the other ends of their cables."""
        ends = [{cable.board_a, cable.board_b} for cable in self.cables]
        return {board for both in ends if both & boards for board in both}
