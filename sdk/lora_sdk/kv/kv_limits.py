"""What a KV cache is told of a placed model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_host import abi

if TYPE_CHECKING:
    from lora_sdk.plan.model_plan import Plan


def kv_limits(plan: Plan) -> tuple[int, int, int, int, int, bool]:
    """The first arguments of KvCache: pages, sequences, scratch slots, positions of a sequence, KV
    operations of a step, whether layers have states."""
    scratch = plan.overlay.max_scratch
    recurrent = plan.config.recurrent
    states = recurrent is not None and recurrent.state_bytes > 0
    return plan.page_count, plan.max_sequences, scratch, plan.context, abi.MAX_KV_OPS, states
