"""What a gather makes the Router of overlays/rtl do: how often, by name.

`hop`: the longest way of a block, `line`: of the longest frame on that way; `plan`: a source's
segment of a row group, that is looked at. Of the busiest lane: `frame`, that it makes, files or
forwards; `piece`, what it files of one line of a frame and one of memory (a line that is forwarded
is one); `made`, the same of an own frame; `run`, of a row, whose sum is added up."""

from __future__ import annotations

from collections import Counter
from math import ceil

from lora_host import abi
from lora_lab.timing.vector_counts import Counts
from lora_sdk.plan.collectives import FRAME_OVERHEAD, Collective, hops, row_groups


def gather_counts(collective: Collective, boards: int, ring: bool, rows: int) -> Counts:
    """Of a gather of `rows` rows on `boards` boards that start together."""
    lanes: dict[tuple[int, int], Counter[str]] = {}
    furthest = longest = 0
    groups = list(row_groups(rows))
    for source in range(boards):
        number = 0
        for group in groups:
            for size in collective.blocks(source, boards, group):
                longest = max(longest, min(size, abi.FRAME_PAYLOAD))
                for way, reach in zip((1, -1), hops(source, number, boards, ring), strict=True):
                    furthest = max(furthest, reach)
                    for distance in range(reach + 1 if reach else 0):
                        lane = lanes.setdefault(
                            ((source + way * distance) % boards, way), Counter()
                        )
                        lane.update(_of_block(size, group, distance, reach))
                number += 1
    busiest = max(lanes.values(), key=_work, default=Counter())
    return {
        "command": 1,
        "hop": furthest,
        "plan": boards * len(groups) * abi.SEGMENTS,
        "line": furthest * ceil(longest / abi.LINE_BYTES),
        **busiest,
    }


def _work(lane: Counter[str]) -> int:
    return lane["made"] + lane["piece"] + lane["run"]


def _of_block(size: int, rows: int, distance: int, reach: int) -> dict[str, int]:
    """What a lane does with a block that goes `reach` hops and has gone `distance`: it makes the
    block, or files it, and forwards it where it goes on."""
    passed = 0 < distance < reach
    frames = ceil(size / abi.FRAME_PAYLOAD)
    lines = ceil((size + frames * FRAME_OVERHEAD) / abi.LINE_BYTES)
    pieces = 2 * ceil(size / abi.LINE_BYTES)
    moved = {"piece": pieces + lines * passed} if distance else {"made": pieces}
    return {"frame": frames * (1 + passed), "run": rows, **moved}
