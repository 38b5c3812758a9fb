"""How to draft tokens: what a user says of speculation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lora_host.errors import RequestError
from lora_sdk.step.tree_shape import TreeShape

Choose = Callable[[int], TreeShape]
"""The tree to draft for a context of this many positions, the root included."""

DEVICE = "emu:u280"  # of a draft model
DEFAULT_WINDOW = 256  # positions that a short-window draft attends to
PROPOSERS = ("draft", "eagle3", "lookup", "longspec")


@dataclass(frozen=True)
class SpeculationOptions:
    """Proposer and draft tree.

    `proposer`: one of PROPOSERS. `draft`: folder of the draft model or head; look-up has none.
    `tree`: one for all contexts, or a function of the context's positions, the root included.
    `device`: board of a draft model. `window`: attention window of "longspec" in tokens, None for
    the default, at most the draft's positions.
    RequestError names an invalid option.
    """

    proposer: str
    draft: str | Path | None = None
    tree: TreeShape | Choose = TreeShape.chain(5)  # noqa: RUF009  a frozen value
    device: str = DEVICE
    window: int | None = None

    def __post_init__(self) -> None:
        if self.proposer not in PROPOSERS:
            raise RequestError(f"proposer {self.proposer!r}; expected {', '.join(PROPOSERS)}")
        if (self.draft is None) != (self.proposer == "lookup"):
            found = "none is named" if self.draft is None else f"{self.draft} is named"
            expected = "none" if self.proposer == "lookup" else "a folder"
            raise RequestError(f"proposer {self.proposer}: draft {found}; expected {expected}")
        if not isinstance(self.tree, TreeShape) and not callable(self.tree):
            raise RequestError(
                f"tree of speculation is {self.tree!r:.60}; expected a TreeShape or a function of "
                "the context"
            )

    @property
    def folder(self) -> Path:
        """The draft's folder."""
        assert self.draft is not None  # checked by __post_init__
        return Path(self.draft)

    def choose(self, context: int) -> TreeShape:
        """The tree for `context` positions, the root included."""
        return self.tree if isinstance(self.tree, TreeShape) else self.tree(context)
