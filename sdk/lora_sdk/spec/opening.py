"""Opens the proposer that SpeculationOptions describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.arguments.option import ArgumentError
from lora_sdk.spec.draft_model import DEVICE
from lora_sdk.spec.loop import Choose, Speculation
from lora_sdk.spec.proposer import Proposer
from lora_sdk.spec.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.core.kvcache import KvCache
    from lora_sdk.core.opening import OpenedModel
    from lora_sdk.core.options import EngineOptions

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


def with_taps(options: EngineOptions) -> EngineOptions:
    """The engine's options, with the hidden layers that the proposer needs appended. RequestError
    if `speculation` is of another type."""
    speculation = options.speculation
    if speculation is None:
        return options
    if not isinstance(speculation, SpeculationOptions):
        expected = "SpeculationOptions of lora_sdk.spec.opening"
        raise ArgumentError("speculation", speculation, expected, optional=True)
    if speculation.proposer != "eagle3":
        return options
    from lora_sdk.model.config import load_config
    from lora_sdk.spec.eagle3_config import load_head_config

    target = load_config(options.folder)
    if target.stream_scale != 1:
        raise RequestError(
            f"{options.folder}: proposer eagle3 reads hidden states, and those of a scaled residual"
            f" stream ({target.architecture}) are not supported; use lookup, draft or longspec"
        )
    layers = load_head_config(speculation.folder).layers_of(target.layers)
    more = [layer for layer in layers if layer not in options.hidden_layers]
    return replace(options, hidden_layers=(*options.hidden_layers, *more))


def open_speculation(
    options: EngineOptions, loaded: OpenedModel, cache: KvCache
) -> Speculation | None:
    """Speculation with an open proposer, closed with the boards; None if it is off."""
    speculation = options.speculation
    if speculation is None:
        return None
    proposer = _open_proposer(speculation, options, loaded)
    loaded.stack.callback(proposer.close)
    return Speculation(proposer, speculation.choose, cache, loaded.plan.hidden_taps)


def _open_proposer(
    speculation: SpeculationOptions, options: EngineOptions, loaded: OpenedModel
) -> Proposer:
    plan, vocabulary = loaded.plan, loaded.config.vocabulary
    if speculation.proposer == "lookup":
        from lora_sdk.spec.lookup import Lookup

        return Lookup()
    if speculation.proposer == "draft":
        from lora_sdk.spec.draft_model import DraftModel

        return DraftModel.open_model(
            speculation.folder,
            vocabulary,
            plan.context,
            plan.max_sequences,
            speculation.device,
            recovery=options.recovery,
        )
    if speculation.proposer == "longspec":
        from lora_sdk.spec.longspec import LongSpec

        return LongSpec.open_model(
            speculation.folder,
            vocabulary,
            plan.max_sequences,
            speculation.window,
            speculation.device,
            recovery=options.recovery,
        )
    from lora_sdk.spec.eagle3 import Eagle3

    return Eagle3.open_head(speculation.folder, options.folder, loaded.config, plan.context)
