"""Sequences whose pages another thread writes while steps run."""

from __future__ import annotations

from typing import Protocol


class PendingWrite(Protocol):
    """Writes K and V into the pages of an empty sequence."""

    def stop(self) -> None:
        """Return once nothing more is written: the pages may get other contents."""


class PendingWrites:
    """The fills of one KV cache, by sequence."""

    def __init__(self) -> None:
        self._fills: dict[int, PendingWrite] = {}

    def begin(self, sequence: int, fill: PendingWrite) -> None:
        """`fill` writes into the pages of `sequence` from now on."""
        self._fills[sequence] = fill

    def end(self, sequence: int) -> None:
        """All has been written."""
        self._fills.pop(sequence, None)

    def stop(self, sequence: int) -> None:
        """The sequence gives its pages back."""
        fill = self._fills.pop(sequence, None)
        if fill is not None:
            fill.stop()

    def stop_all(self) -> None:
        """The boards lose what they hold, or pages get other numbers."""
        for sequence in list(self._fills):
            self.stop(sequence)
