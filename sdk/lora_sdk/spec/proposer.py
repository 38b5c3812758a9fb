"""Interface of proposers: they propose tokens for a tree from the accepted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_sdk.step.tree_shape import TreeShape

Tokens = list["int | None"]
Hidden = NDArray[np.float16]


class Drafting(Protocol):
    """The proposals of one sequence. Equal accepted tokens give equal proposals."""

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """`tokens` were committed after those of earlier calls, from position 0 on.

        `hidden` FP16 [taps, len(tokens), d]: inputs of the proposer's `hidden_layers` at their
        rows; None where it names no layers."""

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """One token per node of `tree`. The root is `pending`, the token after the accepted ones.

        None: no proposal for this node. The nodes below it are then None too, and so are its
        siblings of higher rank. Siblings differ. This call accepts nothing."""

    def fork(self) -> Drafting:
        """A copy with the same accepted tokens, for a forked sequence."""

    def close(self) -> None:
        """Release the sequence's resources."""


class Proposer(Protocol):
    """A source of drafts."""

    @property
    def name(self) -> str:
        """Its name for `--proposer`."""

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """Layers of the target whose inputs `Drafting.accept` needs, in this order; () for none."""

    def open(self) -> Drafting:
        """Proposals for a new sequence without tokens. RequestError if no sequence is free."""

    def close(self) -> None:
        """Release boards and files."""
