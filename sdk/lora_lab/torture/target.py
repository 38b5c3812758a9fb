"""What faults are planted into."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import RequestError

if TYPE_CHECKING:
    from lora_host.cluster_file import Cable
    from lora_host.emulated import Emulated
    from lora_sdk.engine.engine import Engine


class Target:
    """Emulated boards, and the engine that runs on them once it is open."""

    def __init__(self, emulated: Emulated, engine: Engine | None = None) -> None:
        self._emulated = emulated
        self.engine = engine
        self.damaged: list[str] = []
        """Places of weights that faults have changed, as messages name them."""
        self.unreadable: list[tuple[int, int]] = []
        """Boards and banks with words that ECC cannot correct."""

    @property
    def emulated(self) -> Emulated:
        """The boards in use now: a recovery without a board opens others."""
        return (self.engine and self.engine.cluster.emulated) or self._emulated

    def fault(self, board: int, kind: int, *numbers: int) -> None:
        """Plant a fault of the emulator."""
        boards = self.emulated
        if board < boards.size:
            with suppress(RequestError):  # they are closed
                boards.fault(board, kind, *numbers)

    def heal(self) -> None:
        """End the faults of all boards."""
        with suppress(RequestError):  # they are closed
            for board in range(self.emulated.size):
                self.emulated.fault(board, abi.FAULT_NONE)

    @property
    def cables(self) -> tuple[Cable, ...]:
        """Those of the engine's cluster."""
        return () if self.engine is None else tuple(self.engine.cluster.cables)
