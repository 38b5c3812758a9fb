"""A small draft model with a short attention window (after LongSpec, Yang et al., 2025).

Its KV cache holds only the last tokens. So memory and time of a proposal do not grow with the
context, and the context may exceed the draft's own positions. The window moves in steps of half its
length. The remaining tokens are then run again, from position 0 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lora_host.errors import RequestError
from lora_sdk.opening.speculation_options import DEFAULT_WINDOW, DEVICE
from lora_sdk.spec.draft_model import (
    DraftBoard,
    ModelDrafting,
    check_vocabulary,
    open_board,
)
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.step.tree_shape import TreeShape

_DEPTH = 64  # cache positions for drafted tokens after the window


def window_start(length: int, window: int) -> int:
    """Index of the first of `length` accepted tokens in the window: a multiple of half the window,
    fewer than `window` tokens before the pending one."""
    stride = window // 2
    return 0 if length < window else ((length - window) // stride + 1) * stride


class LongSpec:
    """Proposes the most likely tokens of a small model, given the last `window` tokens."""

    name = "longspec"
    hidden_layers: tuple[int, ...] = ()

    def __init__(self, board: DraftBoard, window: int) -> None:
        self._board = board
        self._window = window

    @property
    def board(self) -> DraftBoard:
        """Its board."""
        return self._board

    @classmethod
    def open_model(
        cls,
        folder: Path,
        vocabulary: int,
        sequences: int,
        window: int | None = None,
        device: str = DEVICE,
        kernels: str = "native",
        recovery: str = "auto",
    ) -> LongSpec:
        """The model in `folder` on a board; `vocabulary` is the target's.

        `window` None: DEFAULT_WINDOW tokens, or the draft's positions where these are fewer.
        ModelError: its vocabulary is not the target's. RequestError: the window is too long."""
        from lora_sdk.model.config import load_config

        config = load_config(folder)
        check_vocabulary(folder, config.vocabulary, vocabulary)
        window = min(DEFAULT_WINDOW, config.positions) if window is None else window
        if not 2 <= window <= config.positions:
            raise RequestError(
                f"draft window of {window} tokens; expected 2 to the draft's {config.positions} "
                "positions"
            )
        board = open_board(folder, window + _DEPTH, sequences, device, kernels, recovery)
        return cls(board, window)

    def open(self) -> WindowDrafting:
        """Proposals for a new sequence."""
        return WindowDrafting(self._board, self._board.cache.open(), self._window)

    def close(self) -> None:
        """Release the board."""
        self._board.opened.stack.close()


class WindowDrafting(ModelDrafting):
    """One sequence of the draft model. It restarts when the window moves."""

    def __init__(self, board: DraftBoard, sequence: int, window: int) -> None:
        super().__init__(board, sequence)
        self._window = window
        self._history: list[int] = []
        self._start = 0

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """See Drafting."""
        self._history.extend(tokens)
        super().accept(tokens)

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """See Drafting."""
        start = window_start(len(self._history), self._window)
        if start != self._start:
            self._restart(start)
        return super().propose(pending, tree)

    def fork(self) -> WindowDrafting:
        """A sequence that shares the committed positions."""
        self._settle()
        other = WindowDrafting(self._board, self._cache.fork(self._sequence), self._window)
        other._waiting, other._history = list(self._waiting), list(self._history)
        other._start = self._start
        return other

    def _restart(self, start: int) -> None:
        self.close()
        self._sequence, self._start = self._cache.open(), start
        self._waiting = self._history[start:]
