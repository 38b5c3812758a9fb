"""Sizes and budgets of a run: the shipped models', and a smoke run's of a few seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from .adapter_plan import AdapterPlan
from .corpus import Document, Split
from .draft import DraftPlan
from .model import Shape
from .target import TargetPlan
from .train_eagle3 import Eagle3Plan

STEPS = {"target": 2180, "own_text": 1, "draft": 751, "eagle3": 291, "lora": 192, "bdlora": 155}
"""Steps of each stage for the shipped models."""

SMOKE_STEPS = dict.fromkeys(STEPS, 3)


def _adapter_plans(sequences: int, length: int) -> dict[str, AdapterPlan]:
    sizes = {"sequences": sequences, "length": length}
    return {
        "lora": AdapterPlan(rank=8, blocks=0, **sizes),
        "bdlora": AdapterPlan(rank=16, blocks=8, **sizes),
    }


@dataclass(frozen=True)
class Plans:
    """Everything that a run is made of, apart from its budgets."""

    entries: int = 4096
    target: TargetPlan = field(default_factory=TargetPlan)
    draft: DraftPlan = field(default_factory=DraftPlan)
    eagle3: Eagle3Plan = field(default_factory=Eagle3Plan)
    adapters: dict[str, AdapterPlan] = field(default_factory=lambda: _adapter_plans(4, 256))
    most_bytes: int | None = None
    prompts: int = 64
    prompt_length: int = 128
    new_tokens: int = 128
    own_prompts: int = 1024
    own_prompt_length: int = 96
    own_new_tokens: int = 160
    own_share: float = 0.5
    resume: bool = False

    def trim(self, split: Split) -> Split:
        """`split` with at most `most_bytes` of its smallest documents in each half."""
        if self.most_bytes is None:
            return split
        return Split(
            smallest(split.train, self.most_bytes), smallest(split.held_out, self.most_bytes)
        )


def smallest(documents: list[Document], most_bytes: int) -> list[Document]:
    """The smallest documents that fit into `most_bytes` together, in order of their names."""
    kept: list[Document] = []
    used = 0
    for document in sorted(documents, key=lambda item: (len(item.text), item.name)):
        used += len(document.text.encode())
        if used > most_bytes and kept:
            break
        kept.append(document)
    return sorted(kept, key=lambda item: item.name)


def smoke_plans() -> Plans:
    """A run of seconds through every stage; its models know nothing."""
    shape = Shape(vocabulary=320, hidden=32, ffn=64, layers=8, heads=8, kv_heads=4, positions=64)
    return Plans(
        entries=shape.vocabulary,
        target=TargetPlan(shape=shape, compiled=False, tokens_per_step=64, short=32),
        draft=DraftPlan(compiled=False, tokens_per_step=64, short=32),
        eagle3=Eagle3Plan(compiled=False, tokens_per_step=64, short=32),
        adapters=_adapter_plans(2, 32),
        most_bytes=6000,
        prompts=4,
        prompt_length=16,
        new_tokens=16,
        own_prompts=4,
        own_prompt_length=16,
        own_new_tokens=40,
    )
