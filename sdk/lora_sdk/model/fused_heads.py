"""Fused q, k and v of families whose matrix has the heads of each KV group side by side."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig


def heads_side_by_side(
    config: ModelConfig, name: str, tensor: str, rotated: Sequence[int] | None = None
) -> dict[str, Source]:
    """Canonical q, k and v of layer `name`: the queries of the first KV head, its k and its v, then
    those of the second. `rotated`: the order of a head's columns of q and k in which boards rotate
    them; None leaves them as they are."""
    group, size = config.heads // config.kv_heads, config.head_dim
    plain = range(size)
    starts = range(0, (group + 2) * config.kv_heads, group + 2)
    heads = {
        "q": [start + index for start in starts for index in range(group)],
        "k": [start + group for start in starts],
        "v": [start + group + 1 for start in starts],
    }
    total = len(starts) * (group + 2) * size
    found: dict[str, Source] = {}
    for part, numbers in heads.items():
        columns = plain if part == "v" or rotated is None else rotated
        order = tuple(number * size + column for number in numbers for column in columns)
        key = f"{name}.{part}"
        found[key] = Source(f"{tensor}.weight", "oi", (total, config.hidden), 0, len(order), order)
        if config.qkv_bias:
            found[f"{key}.bias"] = Source(
                f"{tensor}.bias", "vector", (total,), 0, len(order), order
            )
    return found
