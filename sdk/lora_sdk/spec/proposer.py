"""What every draft offers: proposals for a tree, from the accepted tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_sdk.spec.tree_shape import TreeShape

Tokens = list["int | None"]
Hidden = NDArray[np.float16]


class Drafting(Protocol):
    """The proposals of one sequence. Equal accepted tokens give equal proposals."""

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """`tokens` were committed behind those of the calls before, from position 0 on.

        `hidden` FP16 [taps, len(tokens), d]: inputs of the proposer's `hidden_layers` at their
        rows; None where it names no layers."""

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """A token a node of `tree`, whose root is `pending`, the token behind the accepted ones.

        None where there is no proposal: the nodes below it are None too, and so are its siblings
        of higher rank. Siblings differ. Nothing is accepted by this call."""

    def fork(self) -> Drafting:
        """The same accepted tokens once more, for a sequence that goes its own way."""

    def close(self) -> None:
        """Give back what the sequence holds."""


class Proposer(Protocol):
    """A draft. `hidden_layers`: layers of the target whose inputs `accept` wants, () for none."""

    @property
    def name(self) -> str:
        """As `--proposer` names it."""

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """Layers of the target whose inputs `Drafting.accept` wants, in this order."""

    def open(self) -> Drafting:
        """Proposals for a new sequence without tokens. RequestError where no more fit."""

    def close(self) -> None:
        """Give back boards and files."""
