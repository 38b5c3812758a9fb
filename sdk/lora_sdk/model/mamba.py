"""Mamba2's layers: fields and tensor names that families share (docs/numbers.md, 3.20)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lora_host import abi
from lora_sdk.model.fields import Fields
from lora_sdk.model.recurrent import MAX_KERNEL
from lora_sdk.model.source import Source, linear, vector
from lora_sdk.model.spec import ModelConfig, RecurrentConfig

MAMBA, ATTENTION = ("mamba", "linear_attention"), ("attention", "full_attention")
"""What layer_types calls these layers, in older files and in newer ones."""


@dataclass(frozen=True)
class ScanNames:
    """A family's names of the fields, and what they mean where they are absent."""

    heads: str
    head_dim: str
    groups: str
    state: str
    kernel: str
    biased: str
    defaults: tuple[int, int, int, int, int]


MAMBA_NAMES = ScanNames(
    "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
    "mamba_conv_bias", (128, 64, 1, 256, 4),
)  # fmt: skip


def read_scan(
    fields: Fields,
    names: ScanNames,
    layers: frozenset[int],
    values: int,
    *,
    normed: bool = True,
    limits: tuple[float, float] | None = None,
) -> RecurrentConfig:
    """The scan of `layers`, `values` columns wide. ModelError: a size out of range, heads that do
    not have these columns, groups that do not share them evenly."""
    most, defaults = abi.MAX_RECURRENT_COLUMNS, names.defaults
    heads = fields.integer(names.heads, defaults[0], high=most)
    size = values // heads
    if fields.raw(names.head_dim)[1] != "auto":
        size = fields.integer(names.head_dim, defaults[1], high=most)
    if heads * size != values:
        raise fields.error(names.head_dim, size, f"{heads} heads with {values} columns together")
    groups = fields.integer(names.groups, defaults[2], high=heads)
    if heads % groups:
        raise fields.error(names.groups, groups, f"a divisor of {names.heads} {heads}")
    return RecurrentConfig(
        "selective_scan",
        layers,
        fields.integer(names.kernel, defaults[4], high=MAX_KERNEL),
        values,
        groups * fields.integer(names.state, defaults[3], high=most),
        groups,
        heads,
        biased=fields.flag(names.biased, True),
        limits=read_limits(fields) if limits is None else limits,
        normed=normed,
    )


def read_limits(fields: Fields) -> tuple[float, float]:
    """time_step_limit: a pair, the second of which may be infinity, also as transformers spells
    it. ModelError: another value."""
    value = fields.raw("time_step_limit", [0.0, math.inf])[1]
    pair = [_number(one) for one in value] if isinstance(value, list) else []
    if len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
        raise fields.error("time_step_limit", value, "two numbers from 0 on, the lower one first")
    return pair[0], pair[1]


def _number(value: Any) -> float:
    if isinstance(value, Mapping):
        value = value.get("__float__")
    if value == "Infinity":
        return math.inf
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known else math.nan


def scan_sources(config: ModelConfig, layer: int, lead: str) -> Iterator[tuple[str, Source]]:
    """Those of the module `lead`. in_proj has z, x, B, C, dt; the convolution x, B, C."""
    recurrent, name = config.recurrent, f"layer.{layer}.mix"
    assert recurrent is not None
    keys, values, heads = recurrent.keys, recurrent.values, recurrent.value_heads
    whole = (2 * values + 2 * keys + heads, config.hidden)
    first = 0
    for part, count in (("z", values), ("v", values), ("k", keys), ("q", keys), ("a", heads)):
        yield f"{name}.{part}", Source(f"{lead}.in_proj.weight", "oi", whole, first, count)
        first += count
    wide, first = 2 * keys + values, 0
    for part, count in (("v", values), ("k", keys), ("q", keys)):
        shape = (wide, 1, recurrent.kernel)
        yield f"{name}.taps.{part}", Source(f"{lead}.conv1d.weight", "oi", shape, first, count)
        if recurrent.biased:
            bias = Source(f"{lead}.conv1d.bias", "vector", (wide,), first, count)
            yield f"{name}.taps.{part}.bias", bias
        first += count
    for part, file in (("a_log", "A_log"), ("dt_bias", "dt_bias"), ("d", "D")):
        yield f"{name}.{part}", vector(f"{lead}.{file}", heads)
    if recurrent.normed:
        yield f"{name}.norm.gamma", vector(f"{lead}.norm.weight", values)
    yield f"{name}.o", linear(f"{lead}.out_proj.weight", values, config.hidden)
