"""Bits of the held-out text by the model and by what is written, and what lm_head and the cache
cost of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lora_sdk.model.kv_formats import kv_format
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import Operations, head, run_layer
from lora_sdk.quant.calibrate import LayerResult
from lora_sdk.quant.head import HeadResult, head_parameters, round_head
from lora_sdk.quant.layer import F32, Parameters, Weights
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.reference import bits_of
from lora_sdk.quant.rounded import RoundedOperations, exact_operations

MOST = 0.005
"""The part of all bits that an INT8 lm_head, or cache, may add where it was not asked for."""


@dataclass
class Streams:
    """Inputs of a layer [T, hidden] by window: `text`, of the calibration text as the rounded
    layers before make them. Of the held-out text `exact`, by the model's layers, `rounded`, by the
    rounded ones, and `cached`, by these with an FP16 cache; none where that is its format."""

    text: list[F32]
    exact: list[F32]
    rounded: list[F32]
    cached: list[F32]

    @staticmethod
    def first(windows: Sequence[F32], exact: Sequence[F32], recipe: Recipe) -> Streams:
        """The first layer's: `exact` by the model, `windows`, of calibration and then those held
        out, by what is rounded."""
        text = len(windows) - len(exact)
        held = windows[text:]
        cached = () if recipe.kv == "fp16" else held
        return Streams(list(windows[:text]), list(exact), list(held), list(cached))

    @property
    def all(self) -> list[F32]:
        """Of all kinds, one after the other."""
        return [*self.text, *self.exact, *self.rounded, *self.cached]

    @staticmethod
    def of(windows: Sequence[F32], text: int, held: int) -> Streams:
        """What `all` gave, of `text` windows of calibration and `held` held out."""
        ends = [text, text + held, text + 2 * held]
        first, second, third = (list(windows[a:b]) for a, b in zip([0, *ends], ends, strict=False))
        return Streams(first, second, third, list(windows[ends[-1] :]))

    def run_exact(self, config: ModelConfig, layer: int, parameters: Parameters) -> None:
        """Replace `exact` by the outputs of the model's layer."""
        plain = exact_operations(config, parameters)
        self.exact = [run_layer(x, layer, config, plain) for x in self.exact]

    def run_rounded(
        self,
        config: ModelConfig,
        layer: int,
        recipe: Recipe,
        parameters: Parameters,
        result: LayerResult,
    ) -> None:
        """Replace the others by the outputs of the rounded layer."""
        inputs, integer, form = result.inputs, recipe.integer, recipe.kv_format
        ours = RoundedOperations(config, parameters, integer, inputs, form, result.attention)
        wide = RoundedOperations(config, parameters, integer, inputs, kv_format("fp16"))
        self.text = [run_layer(x, layer, config, ours) for x in self.text]
        self.rounded = [run_layer(x, layer, config, ours) for x in self.rounded]
        self.cached = [run_layer(x, layer, config, wide) for x in self.cached]


@dataclass(frozen=True)
class Bits:
    """Of the held-out text, `before` by the model and `after` by what is written. `costs`: the part
    of them that lm_head ("head") and the cache ("kv") add as `tried`, against FP16."""

    before: float = 0.0
    after: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)


def finish(
    source: Weights,
    checkpoint: Weights,
    recipe: Recipe,
    streams: Streams,
    held_out: Sequence[Sequence[int]],
) -> tuple[HeadResult, Bits, Recipe]:
    """lm_head, the bits, and `recipe` with FP16 for what it leaves to judge and what costs more
    than MOST. `source`: the model as it is, `checkpoint`: what is rounded."""
    found = round_head(checkpoint, recipe, streams.text)
    if not held_out:
        return found, Bits(), recipe
    bits = _measured(source, checkpoint, recipe, found, streams, held_out)
    dear = [name for name in recipe.judged if bits.costs.get(name, 0.0) > MOST]
    if dear:
        wide = replace(recipe, **dict.fromkeys(dear, "fp16"))  # type: ignore[arg-type]
        if wide.kv != recipe.kv:
            streams.rounded, streams.cached = streams.cached, []
        if wide.head != recipe.head:
            found = round_head(checkpoint, wide, streams.text)
        again = _measured(source, checkpoint, wide, found, streams, held_out)
        return found, Bits(bits.before, again.after, bits.costs), wide
    return found, bits, recipe


def _measured(
    source: Weights,
    checkpoint: Weights,
    recipe: Recipe,
    found: HeadResult,
    streams: Streams,
    held_out: Sequence[Sequence[int]],
) -> Bits:
    config = checkpoint.config
    exact = exact_operations(source.config, head_parameters(source))
    by_row = recipe.head == "w8"
    ours = RoundedOperations(config, found.parameters, by_row, found.inputs, recipe.kv_format)

    def bits(windows: Sequence[F32], operations: Operations) -> float:
        return sum(
            bits_of(head(x[:-1], config, operations), tokens[1:])
            for x, tokens in zip(windows, held_out, strict=True)
        )

    before, after = bits(streams.exact, exact), bits(streams.rounded, ours)
    costs = {}
    if by_row:
        wide = exact_operations(config, head_parameters(checkpoint))
        costs["head"] = after / bits(streams.rounded, wide) - 1
    if streams.cached:
        costs["kv"] = after / bits(streams.cached, ours) - 1
    return Bits(before, after, costs)
