"""Measures the acceptance of a draft on a text: opens the models, runs them, closes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_host.regular_file import read_regular
from lora_lab.spec_tuning.acceptance import Acceptance, TextRanks
from lora_lab.spec_tuning.acceptance_file import Measured
from lora_lab.spec_tuning.collect import (
    OwnText,
    Progress,
    continue_prompts,
    cut_prompts,
    model_ranks,
    proposer_ranks,
)
from lora_lab.spec_tuning.tree_search import LEVELS, maximal_tree
from lora_sdk.step.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine

DEFAULT_PROMPTS = 256
QUERY_LEVELS, QUERY_WIDTH = 12, 8
"""The maximal tree of drafts that propose at every root."""

OpenProgress = Callable[[str], Progress]
"""Opens a progress display with this title."""


@dataclass(frozen=True)
class TuneRequest:
    """A measurement: the model, the draft (one of PROPOSERS, with its folder), the temperature of
    the continuations, the max number of prompts of each half, and the context (None: the model's).
    """

    model: Path
    proposer: str
    draft: Path | None
    temperature: float = 0.0
    prompts: int = DEFAULT_PROMPTS
    context: int | None = None


def measure(request: TuneRequest, texts: Sequence[Path], open_progress: OpenProgress) -> Measured:
    """Continue prompts of the texts and rank the continuations. RequestError: a text that cannot be
    read or is too short. Errors of the models pass through."""
    from lora_lab.spec_tuning.head_ranks import layers_of_head
    from lora_sdk.engine.engine import Engine
    from lora_sdk.model.config import load_config

    if not 0 <= request.temperature <= 100:
        raise RequestError(f"temperature {request.temperature}; expected 0 to 100")
    text = "\n".join(read_text(path) for path in texts)
    layers: tuple[int, ...] = ()
    if request.proposer == "eagle3":
        assert request.draft is not None  # required by this proposer
        layers = layers_of_head(request.draft, load_config(request.model).layers)
    with Engine(request.model, context=request.context, hidden_layers=layers) as target:
        tokens = target.tokenizer.encode(text, special=False)
        prompts = cut_prompts(tokens, target.context, request.prompts, target.tokenizer.begins_with)
        halves = []
        for name, half in (("search", prompts.search), ("held out", prompts.held_out)):
            own = continue_prompts(
                target, half, request.temperature, open_progress(f"continuing, {name}")
            )
            halves.append(own)
        both = [*halves[0], *halves[1]]
        maximal, ranked = rank(request, target, both, open_progress("ranking"))
    cut = len(halves[0])
    return Measured(
        model=request.model.resolve().name,
        proposer=request.proposer,
        draft=None if request.draft is None else request.draft.resolve().name,
        temperature=request.temperature,
        text=texts[0].name + (f" and {len(texts) - 1} more" if len(texts) > 1 else ""),
        search=Acceptance(maximal, tuple(ranked[:cut])),
        held_out=Acceptance(maximal, tuple(ranked[cut:])),
    )


def rank(
    request: TuneRequest, target: Engine, texts: Sequence[OwnText], progress: Progress
) -> tuple[TreeShape, list[TextRanks]]:
    """The maximal tree of this kind of draft, and the ranks of the texts with it."""
    from lora_lab.spec_tuning.head_ranks import head_ranks
    from lora_sdk.engine.engine import Engine

    maximal = maximal_tree(QUERY_LEVELS, QUERY_WIDTH)
    if request.draft is None:
        from lora_sdk.spec.lookup import Lookup

        return maximal, proposer_ranks(Lookup(), texts, maximal, progress=progress)
    if request.proposer == "eagle3":
        return maximal_tree(), head_ranks(request.draft, target, texts, LEVELS, progress)
    if request.proposer == "longspec":
        from lora_sdk.spec.longspec import LongSpec

        window = LongSpec.open_model(request.draft, target.config.vocabulary, 1)
        try:
            return maximal, proposer_ranks(window, texts, maximal, progress=progress)
        finally:
            window.close()
    from lora_sdk.model.config import load_config
    from lora_sdk.spec.draft_model import check_vocabulary

    check_vocabulary(request.draft, load_config(request.draft).vocabulary, target.config.vocabulary)
    with Engine(request.draft, max_sequences=1) as draft:
        longest = max(len(text.ids) for text in texts)
        if longest > draft.context + 1:
            raise RequestError(
                f"draft {request.draft} has context {draft.context}, the texts need {longest}; "
                "give a shorter --ctx-size, or --proposer longspec"
            )
        return maximal_tree(), model_ranks(draft, texts, LEVELS, progress)


MAX_TEXT_BYTES = 64 << 20


def read_text(path: Path) -> str:
    """The content of a text file. RequestError: missing, not UTF-8, or empty."""
    try:
        text = read_regular(path, MAX_TEXT_BYTES).decode("utf-8")
    except OSError as error:
        raise RequestError(f"text file {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 at byte {error.start}; convert it") from None
    if not text:
        raise RequestError(f"{path}: the text is empty; expected at least one byte")
    return text
