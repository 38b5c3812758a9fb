"""Sliding windows of config.json: how many positions a row sees in each layer."""

from __future__ import annotations

from collections.abc import Callable

from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

SLIDING, FULL = "sliding_attention", "full_attention"


def read_window(fields: Fields, config: ModelConfig, default: int | None = None) -> tuple[int, ...]:
    """`windows` of a family whose sliding_window holds in every layer; a null switches it off, and
    only a missing field means `default`. ModelError: another type, layers that differ."""
    silent = "sliding_window" not in fields.values
    window = _positions(fields, default if silent else None)
    if not fields.flag("use_sliding_window", True) and window:
        expected = "true, or sliding_window null: this family does not read it"
        raise fields.error("use_sliding_window", False, expected)
    kinds = fields.raw("layer_types", [])[1]
    expected = SLIDING if window else FULL
    if not isinstance(kinds, list) or any(kind != expected for kind in kinds):
        raise fields.error("layer_types", kinds, f"a list of {expected} only")
    return _reached((window,) * config.layers, config)


def read_layer_windows(
    fields: Fields,
    config: ModelConfig,
    default: int | None,
    slides: Callable[[int], bool],
) -> tuple[int, ...]:
    """`windows` of a family with use_sliding_window: layers of layer_types that slide, or without
    that list those of which `slides` says so. ModelError: another type, a list of another length,
    layers that slide without a window."""
    window = _positions(fields, default)
    window = window if fields.flag("use_sliding_window", False) else 0
    kinds = fields.raw("layer_types")[1]
    if kinds is None:
        kinds = [SLIDING if window and slides(layer) else FULL for layer in range(config.layers)]
    expected = (FULL, SLIDING) if window else (FULL,)
    known = isinstance(kinds, list) and all(kind in expected for kind in kinds)
    if not known or len(kinds) != config.layers:
        raise fields.error("layer_types", kinds, f"{config.layers} of {', '.join(expected)}")
    return _reached(tuple(window if kind == SLIDING else 0 for kind in kinds), config)


def read_periodic_windows(
    fields: Fields, config: ModelConfig, default: int, period: int
) -> tuple[tuple[int, ...], frozenset[int]]:
    """`windows` of a family of which all layers but every `period`-th slide, or those that
    layer_types names; and which layers these are, also where no sequence reaches the window.
    ModelError: a window below 1, another type, a list of another length."""
    window = fields.integer("sliding_window", default)
    kinds = fields.raw("layer_types")[1]
    if kinds is None:
        kinds = [SLIDING if layer % period else FULL for layer in range(1, config.layers + 1)]
    known = isinstance(kinds, list) and all(kind in (FULL, SLIDING) for kind in kinds)
    if not known or len(kinds) != config.layers:
        raise fields.error("layer_types", kinds, f"{config.layers} of {FULL}, {SLIDING}")
    sliding = frozenset(layer for layer, kind in enumerate(kinds) if kind == SLIDING)
    windows = tuple(window if layer in sliding else 0 for layer in range(config.layers))
    return _reached(windows, config), sliding


def _positions(fields: Fields, default: int | None) -> int:
    """sliding_window, 0 for none."""
    if fields.raw("sliding_window", default)[1] is None:
        return 0
    return fields.integer("sliding_window", default)


def _reached(windows: tuple[int, ...], config: ModelConfig) -> tuple[int, ...]:
    """`windows`, empty where none is shorter than the longest sequence."""
    found = tuple(window if window < config.positions else 0 for window in windows)
    return found if any(found) else ()
