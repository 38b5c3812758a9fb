"""Rotary positions of config.json in its old and new spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lora_host.errors import ModelError
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.rope_scaling import longrope_attention, yarn_attention, yarn_scores
from lora_sdk.model.spec import RopeConfig, RopeKind

DEFAULT_THETA = 10000.0
KINDS: tuple[RopeKind, ...] = ("default", "linear", "llama3", "yarn", "longrope", "dynamic")
ORIGINAL = "original_max_position_embeddings"
MAX_FACTOR = 1e6
MIN_DIVISOR = 0.75  # angles stay in the range of our sine


def read_rope(
    fields: Fields,
    positions: int,
    theta_names: Sequence[str] = ("rope_theta",),
    width: int = 0,
    default_theta: float = DEFAULT_THETA,
    *,
    head_dim: int,
    kinds: Mapping[str, RopeKind] | None = None,
    original: int | None = None,
) -> RopeConfig:
    """RoPE from `rope_parameters`, or from `rope_scaling` and the top-level `theta_names`. `width`:
    the columns of a head that are rotated, 0 for all (`rotary_width` reads them). `kinds`: the
    names that the family has, and their meanings. `original`: the positions before scaling where
    the family has a field of its own for them. ModelError: a type that is not supported, a
    parameter that is missing, wrong, of another type, or not read by this one."""
    rope = _rope_fields(fields)
    theta = rope.number("rope_theta", fields.number(theta_names, default_theta, 1), 1)
    names = kinds or {kind: kind for kind in KINDS}
    kind = _kind(rope, names)
    if not width:
        rope.only("partial_rotary_factor", (1, 1.0), "rotating a part of a head")
    for name in ("partial_rotary_factor", "finetuned"):  # read elsewhere, and no arithmetic
        rope.raw(name)
    fields.raw(ORIGINAL)
    values = _READERS[kind](_Scaled(fields, rope, theta, width or head_dim, positions, original))
    _refuse_rest(rope, kind)
    return RopeConfig(kind=kind, theta=theta, width=width, **values)


def _kind(rope: Fields, names: Mapping[str, RopeKind]) -> RopeKind:
    """The type, which older files call `type` and some files name in both ways."""
    if rope.has("mrope_section") or "mrope" in (
        rope.values.get("rope_type"),
        rope.values.get("type"),
    ):
        raise ModelError(
            f"{rope.where}: mrope, rotary positions of images and video: not supported"
        )
    kind: RopeKind = rope.choice(("rope_type", "type"), "default", names)
    old = rope.raw("type")[1]
    if old is not None and rope.choice("type", "default", names) != kind:
        raise rope.error("type", old, f"{rope.values['rope_type']!r} as in rope_type, or none")
    return kind


def yarn_score_scale(fields: Fields, rope: RopeConfig) -> float:
    """What DeepSeek's models multiply q.k by, twice, beside 1/sqrt(head_dim)."""
    scale = _rope_fields(fields).number("mscale_all_dim", 0.0, 0) if rope.kind == "yarn" else 0.0
    return yarn_scores(rope.factor, scale)


def scaled_positions(rope: RopeConfig, positions: int) -> int:
    """The longest sequence of a model whose max_position_embeddings is `positions`: YaRN and
    dynamic NTK reach factor times their original positions, whatever that field says."""
    if rope.kind not in ("yarn", "dynamic"):
        return positions
    reach = math.floor(rope.factor * rope.original_positions)
    return min(MAX_POSITIONS, max(positions, reach))


@dataclass(frozen=True)
class _Scaled:
    """What the parameters of a type are read from and checked against."""

    fields: Fields
    rope: Fields
    theta: float
    width: int
    positions: int
    own: int | None

    def original(self) -> int:
        """The positions before scaling: the top level wins over the parameters."""
        if self.own is None:
            return self.fields.integer(ORIGINAL, self.rope.integer(ORIGINAL, self.positions))
        self.rope.only(ORIGINAL, (self.own,), f"a value besides the model's own {self.own}")
        return self.own

    def factor(self) -> float:
        value = self.rope.number("factor", low=1)
        if value > MAX_FACTOR:
            raise self.rope.error("factor", value, f"a number in 1..{MAX_FACTOR:g}")
        return value

    def attention(self, default: float) -> float:
        return self.rope.number("attention_factor", default)

    def divisors(self, name: str) -> tuple[float, ...]:
        """A number for each rotated pair."""
        value, pairs = self.rope.raw(name)[1], self.width // 2
        items = value if isinstance(value, list) and len(value) == pairs else None
        if items is None or any(not _divisor(item) for item in items):
            raise self.rope.error(name, value, f"a list of {pairs} numbers in {MIN_DIVISOR}..1e6")
        return tuple(float(item) for item in items)


def _divisor(item: object) -> bool:
    known = isinstance(item, int | float) and not isinstance(item, bool)
    return known and MIN_DIVISOR <= item <= MAX_FACTOR  # type: ignore[operator]


def _default(at: _Scaled) -> dict[str, Any]:
    return {}


def _linear(at: _Scaled) -> dict[str, Any]:
    return {"factor": at.factor()}


def _llama3(at: _Scaled) -> dict[str, Any]:
    rope = at.rope
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error("high_freq_factor", high, f"more than low_freq_factor {low}")
    return {
        "factor": at.factor(),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_positions": at.original(),
    }


def _yarn(at: _Scaled) -> dict[str, Any]:
    rope, factor = at.rope, at.factor()
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    if fast < slow:
        raise rope.error("beta_fast", fast, f"at least beta_slow {slow}")
    if at.theta <= 1:
        raise rope.error("rope_theta", at.theta, "more than 1 with yarn")
    scales = rope.number("mscale", 0.0, 0), rope.number("mscale_all_dim", 0.0, 0)
    return {
        "factor": factor,
        "original_positions": at.original(),
        "beta_fast": fast,
        "beta_slow": slow,
        "truncate": rope.flag("truncate", True),
        "attention_factor": at.attention(yarn_attention(factor, *scales)),
    }


def _longrope(at: _Scaled) -> dict[str, Any]:
    original = at.original()
    if original < 2:
        raise at.rope.error(ORIGINAL, original, "at least 2")
    factor = at.rope.number("factor", at.positions / original)
    return {
        "original_positions": original,
        "short_factors": at.divisors("short_factor"),
        "long_factors": at.divisors("long_factor"),
        "attention_factor": at.attention(longrope_attention(factor, original)),
        "context": at.positions,
    }


def _dynamic(at: _Scaled) -> dict[str, Any]:
    if at.width <= 2:
        raise at.rope.error("rope_type", "dynamic", "another type for heads of 2 rotated columns")
    factor = at.factor()
    found = RopeConfig("dynamic", at.theta, factor, original_positions=at.positions)
    return {
        "factor": factor,
        "original_positions": at.positions,
        "context": scaled_positions(found, at.positions),
    }


_READERS: dict[RopeKind, Callable[[_Scaled], dict[str, Any]]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "dynamic": _dynamic,
}


def rotary_width(
    fields: Fields, head_dim: int, default: float, names: Sequence[str] = ("partial_rotary_factor",)
) -> int:
    """The columns of a head that are rotated, 0 for all, by the factor in `rope_parameters` or, at
    the top level, in the first of `names` that is there. ModelError: an odd number, or too many."""
    factor = _rope_fields(fields).number(
        "partial_rotary_factor", fields.number(names, default, 0), 0
    )
    width = int(head_dim * factor)
    if factor > 1 or width < 2 or width % 2:
        raise fields.error(names[0], factor, f"one that makes an even part of a head of {head_dim}")
    return width if width < head_dim else 0


def _rope_fields(fields: Fields) -> Fields:
    new, old = fields.raw("rope_parameters")[1], fields.raw("rope_scaling")[1]
    if new and old and new != old:
        raise ModelError(f"{fields.where}: rope_parameters and rope_scaling differ, expected one")
    chosen = old or new or {}
    if not isinstance(chosen, dict):
        raise fields.error("rope_scaling", chosen, "an object")
    return Fields(chosen, f"{fields.where}: rope parameters")


def _refuse_rest(rope: Fields, kind: str) -> None:
    """A parameter that the type does not read belongs to another type: say so, do not guess."""
    for name, value in rope.values.items():
        if value is not None and not rope.was_read(name):
            raise rope.error(name, value, f"none: the RoPE type {kind} does not read it")
