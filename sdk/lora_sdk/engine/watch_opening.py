"""From options to the watch over an engine's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.engine.weight_watch import WeightWatch
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.recovery.scrubber import Scrubber
from lora_sdk.recovery.weight_repair import WeightRepair

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.opening.options import EngineOptions
    from lora_sdk.recovery.recovery import Recovery
    from lora_sdk.spec.loop import Speculation
    from lora_sdk.step.stepper import Stepper


def open_watch(
    options: EngineOptions,
    opened: OpenedModel,
    cache: KvCache,
    stepper: Stepper,
    recovery: Recovery,
    adapters: AdapterSlots,
    speculation: Speculation | None,
) -> WeightWatch | None:
    """The watch; None where the options want none."""
    if options.check_weights == "off":
        return None
    scrubber = Scrubber(opened, stepper, adapters.ranges)
    repair = WeightRepair(
        opened, cache, stepper, recovery, scrubber, adapters.ranges, adapters.rewrite
    )
    board = None if speculation is None else speculation.draft_board
    draft = None
    if board is not None:
        drafts = Scrubber(board.opened, board.stepper)
        draft = (
            drafts,
            WeightRepair(board.opened, board.cache, board.stepper, board.recovery, drafts),
        )
    notices = WeightNotices(options.on_notice)
    return WeightWatch(stepper, scrubber, repair, draft, notices)
