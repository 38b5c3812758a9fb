"""A small draft model that sees a short window of the sequence (after LongSpec, Yang et al., 2025).

Its KV cache holds the last tokens alone, so memory and time of a proposal do not grow with the
context, and contexts beyond the draft's own positions are no obstacle. The window moves in hops of
half its length: then the tokens that stay are run again, from position 0 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lora_host.errors import RequestError
from lora_sdk.spec.draft_model import (
    DEVICE,
    DraftBoard,
    ModelDrafting,
    check_vocabulary,
    open_board,
)
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.spec.tree_shape import TreeShape

DEFAULT_WINDOW = 256
_DEPTH = 64  # drafted positions for which the cache has room behind the window


def window_start(length: int, window: int) -> int:
    """The first of `length` accepted tokens that the draft sees: a multiple of half the window, and
    fewer than `window` tokens before the pending one."""
    hop = window // 2
    return 0 if length < window else ((length - window) // hop + 1) * hop


class LongSpec:
    """A small model's likeliest tokens, as its last `window` tokens suggest them."""

    name = "longspec"
    hidden_layers: tuple[int, ...] = ()

    def __init__(self, board: DraftBoard, window: int) -> None:
        self._board = board
        self._window = window

    @classmethod
    def open_model(
        cls,
        folder: Path,
        vocabulary: int,
        sequences: int,
        window: int = DEFAULT_WINDOW,
        device: str = DEVICE,
        kernels: str = "native",
    ) -> LongSpec:
        """The model in `folder` on a board; `vocabulary` is the target's.

        ModelError: it has other tokens than the target. RequestError: the window is too long."""
        from lora_sdk.model.config import load_config

        config = load_config(folder)
        check_vocabulary(folder, config.vocabulary, vocabulary)
        if not 2 <= window <= config.positions:
            raise RequestError(
                f"draft window of {window} tokens; expected 2 to the draft's {config.positions} "
                "positions"
            )
        return cls(open_board(folder, window + _DEPTH, sequences, device, kernels), window)

    def open(self) -> WindowDrafting:
        """Proposals for a new sequence."""
        return WindowDrafting(self._board, self._board.cache.open(), self._window)

    def close(self) -> None:
        """Give the board back."""
        self._board.opened.stack.close()


class WindowDrafting(ModelDrafting):
    """One sequence of the draft model, which begins anew where the window moves."""

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
            self._begin_at(start)
        return super().propose(pending, tree)

    def fork(self) -> WindowDrafting:
        """A sequence that shares the committed positions."""
        self._settle()
        other = WindowDrafting(self._board, self._cache.fork(self._sequence), self._window)
        other._waiting, other._history = list(self._waiting), list(self._history)
        other._start = self._start
        return other

    def _begin_at(self, start: int) -> None:
        self.close()
        self._sequence, self._start = self._cache.open(), start
        self._waiting = self._history[start:]
