"""Rotary positions of config.json in its old and new spelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lora_host.errors import ModelError
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import RopeConfig

DEFAULT_THETA = 10000.0
KINDS = {"default": "default", "linear": "linear", "llama3": "llama3"}


def read_rope(
    fields: Fields,
    positions: int,
    theta_names: Sequence[str] = ("rope_theta",),
    width: int = 0,
    default_theta: float = DEFAULT_THETA,
) -> RopeConfig:
    """RoPE from `rope_parameters`, or from `rope_scaling` and the top-level `theta_names`. `width`:
    the columns of a head that are rotated, 0 for all (`rotary_width` reads them). ModelError: a
    type that is not supported, a parameter that is missing, wrong or of another type."""
    rope = _rope_fields(fields)
    theta = rope.number("rope_theta", fields.number(theta_names, default_theta, 1), 1)
    kind = rope.choice(("rope_type", "type"), "default", KINDS)
    if not width:
        rope.only("partial_rotary_factor", (1, 1.0), "rotating a part of a head")
    rope.raw("partial_rotary_factor")
    original = fields.raw("original_max_position_embeddings")[1]
    if original is None:
        original = rope.raw("original_max_position_embeddings", positions)[1]
    values: dict[str, Any] = {}
    if kind != "default":
        values["factor"] = rope.number("factor", low=1)
    if kind == "llama3":
        values["low_freq_factor"] = rope.number("low_freq_factor")
        values["high_freq_factor"] = rope.number("high_freq_factor")
        checked = Fields({"original_max_position_embeddings": original}, rope.where)
        values["original_positions"] = checked.integer("original_max_position_embeddings")
        if values["high_freq_factor"] <= values["low_freq_factor"]:
            raise rope.error(
                "high_freq_factor",
                values["high_freq_factor"],
                f"more than low_freq_factor {values['low_freq_factor']}",
            )
    _refuse_rest(rope)
    return RopeConfig(kind=kind, theta=theta, width=width, **values)


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


def _refuse_rest(rope: Fields) -> None:
    """A parameter that the type does not read belongs to another type: say so, do not guess."""
    for name in ("factor", "low_freq_factor", "high_freq_factor"):
        rope.raw(name)
    for name, value in rope.values.items():
        if value is not None and not rope.was_read(name):
            raise rope.error(name, value, "none: this RoPE type does not read it")
