"""Numbers of heads and their size, from config.json."""

from __future__ import annotations

from lora_sdk.model.fields import Fields


def read_kv_heads(fields: Fields, heads: int, default: int) -> int:
    """num_key_value_heads; ModelError where it does not divide `heads`."""
    kv_heads = fields.integer("num_key_value_heads", default)
    if heads % kv_heads:
        raise fields.error(
            "num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}"
        )
    return kv_heads


def read_head_dim(
    fields: Fields,
    hidden: int,
    heads: int,
    hidden_name: str = "hidden_size",
    default: int | None = None,
) -> int:
    """head_dim, else `default`, else hidden/heads; ModelError where that is no even integer, which
    rotary positions need."""
    if not fields.has("head_dim") and default is None and hidden % heads:
        raise fields.error(hidden_name, hidden, f"a multiple of num_attention_heads {heads}")
    head_dim = fields.integer("head_dim", default or max(1, hidden // heads), high=4096)
    if head_dim % 2:
        raise fields.error("head_dim", head_dim, "an even number, for rotary positions")
    return head_dim
