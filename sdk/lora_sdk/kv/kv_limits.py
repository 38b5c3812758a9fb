"""What a KV cache is told of a placed model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_host import abi

if TYPE_CHECKING:
    from lora_sdk.plan.model_plan import Plan


def kv_limits(plan: Plan) -> tuple[int, int, int, int, int]:
    """The first arguments of KvCache: pages, sequences, scratch slots, positions of a sequence, KV
    operations of a step."""
    scratch = plan.overlay.max_scratch
    return plan.page_count, plan.max_sequences, scratch, plan.context, abi.MAX_KV_OPS
