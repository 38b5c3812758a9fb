"""Random beam searches over small checkpoints: what the engine is given, and what transformers' own
loop is given for the same search."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lora_sdk import BeamSearchParams, Engine, Result
from tests.variants import EOS, PAD, Scale, variant

MODELS: tuple[tuple[str, Scale], ...] = (
    ("gpt2", "init"),
    ("llama_narrow", "x3"),
    ("opt_post_norm", "init"),
    ("gpt2", "x3"),
)
"""`init` has flat logits, `x3` peaked ones."""

COUNT = 24  # searches of each model in the fixture
FIXTURE = Path(__file__).with_name("fixtures") / "beams.json"

LENGTHS = (3, 40, 1, 33)  # of the prompts of a batch: the shorter ones are padded

Found = list[tuple[tuple[int, ...], float]]
"""Hypotheses of one prompt with their scores, the best first."""


@dataclass(frozen=True)
class Case:
    """One call of beam_search. `fields` are those of BeamSearchParams, `pad`: transformers'."""

    model: str
    scale: Scale
    prompts: tuple[tuple[int, ...], ...]
    fields: dict[str, Any] = field(hash=False)
    pad: int | None = PAD

    @property
    def params(self) -> BeamSearchParams:
        return BeamSearchParams(**self.fields)

    @property
    def ends(self) -> list[int]:
        """End tokens."""
        own = [] if self.fields.get("ignore_eos") else [EOS]
        return [*own, *self.fields.get("stop_token_ids", ())]


def cases(model: str, scale: Scale, count: int) -> list[Case]:
    """The first `count` searches of a model, the same on every machine. Every other one has four
    prompts, every third one samples."""
    return [_case(model, scale, index) for index in range(count)]


def _case(model: str, scale: Scale, index: int) -> Case:
    rng = random.Random(f"{model}/{scale}/{index}")
    size = variant(model).config["vocab_size"]
    lengths = LENGTHS if index % 2 else rng.choices(LENGTHS)
    width = rng.choice((2, 3, 4, 6))
    ends = rng.choice(((), (), (5, 9), (7,)))
    fields: dict[str, Any] = {
        "beam_width": width,
        "n": rng.randint(1, width),
        "length_penalty": rng.choice((1.0, 1.0, 0.0, 2.0, 0.6, -1.0)),
        "early_stopping": rng.choice((False, True, "never")),
        "max_tokens": rng.choice((1, 2, 6, 9, 12)),
        "stop_token_ids": list(ends),
        "seed": 100 + index,
    }
    if rng.random() < 0.7:  # end tokens that are likely enough to be met
        fields["logit_bias"] = {token: rng.choice((3.0, 4.5, 6.0)) for token in (EOS, *ends)}
    elif rng.random() < 0.5 and not ends:
        fields["ignore_eos"] = True
    if rng.random() < 0.3:
        fields["repetition_penalty"] = rng.choice((1.3, 0.8))
    if rng.random() < 0.3:
        fields["min_tokens"] = min(fields["max_tokens"], 3)
    if index % 3 == 2:
        fields["temperature"] = rng.choice((1.0, 0.7, 1.8))
        fields.update(rng.choice(({}, {"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.001})))
    prompts = tuple(tuple(rng.choices(range(3, size), k=length)) for length in lengths)
    return Case(model, scale, prompts, fields, rng.choice((PAD, 0, None)))


def expected(model: str, scale: Scale) -> list[list[Found]]:
    """The committed results of a model's first COUNT cases, by tests/fixtures/make_beams.py."""
    every = json.loads(FIXTURE.read_text())[f"{model}/{scale}"]
    return [
        [[(tuple(tokens), score) for tokens, score in found] for found in case] for case in every
    ]


def searched(engine: Engine, case: Case) -> list[Found]:
    """The engine's hypotheses for each prompt."""
    results = engine.beam_search([list(prompt) for prompt in case.prompts], case.params)
    assert isinstance(results, list)
    return [found(result) for result in results]


def found(result: Result) -> Found:
    """A result's hypotheses."""
    assert all(output.score is not None for output in result.outputs)
    return [(output.token_ids, float(output.score or 0.0)) for output in result.outputs]


def difference(ours: Sequence[Found], theirs: Sequence[Found], tolerance: float) -> str:
    """What differs, "" if nothing does: a sequence, or a score by more than `tolerance` in parts of
    the larger of 1 and the score."""
    for prompt, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if [tokens for tokens, _ in one] != [tokens for tokens, _ in other]:
            return f"prompt {prompt}: {one} instead of {other}"
        for (_, a), (_, b) in zip(one, other, strict=True):
            if not abs(a - b) <= tolerance * max(1.0, abs(b)):
                return f"prompt {prompt}: score {a} instead of {b}"
    return ""
