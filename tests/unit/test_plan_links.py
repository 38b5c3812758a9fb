"""Bytes on links, against frames walked one by one as the header's rules say."""

from __future__ import annotations

from collections import defaultdict

import pytest

from lora_host import abi
from lora_sdk.plan.collectives import Collective
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.partition import shard
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.topology import route
from tests.unit.plan_rig import GPT2, LLAMA, LLAMA2_7B, NARROW, OPT_POST, board, overlay
from tests.unit.test_plan_topology import ring


def walk(plan: Plan, rows: int, selected: int) -> dict[tuple[int, str], list[int]]:
    """[frame bytes, payload bytes] by (rank, direction): every frame of every hop."""
    sent: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    size = abi.dtype("vote").itemsize // 8  # elements of a vote
    last = Collective("votes", plan.size * size, size, size, 8)
    for collective in (*plan.collectives, last):
        count = selected if collective.selected else rows
        count = 1 if collective is last else count
        for source in range(plan.size):
            number = 0
            for first in range(0, count, 16):
                for columns in blocks(collective, source, plan.size, min(16, count - first)):
                    size = columns * min(16, count - first) * collective.element_bytes
                    for rank, direction in journeys(source, number, plan.size, plan.route.ring):
                        while_left = size
                        while while_left:
                            part = min(4096, while_left)
                            sent[rank, direction][0] += 32 + part + 4
                            sent[rank, direction][1] += part
                            while_left -= part
                    number += 1
    return sent


def blocks(collective: Collective, source: int, boards: int, rows: int) -> list[int]:
    share = shard(collective.columns, collective.share_unit, source, boards)
    found: list[int] = []
    for segment in range(8):
        piece = shard(collective.columns, collective.segment_unit, segment, 8)
        mine = len(range(max(share.start, piece.start), min(share.stop, piece.stop)))
        if not mine:
            continue
        fits = found and (found[-1] + mine) * rows * collective.element_bytes <= 4096
        if fits:
            found[-1] += mine
        else:
            found.append(mine)
    return found


def journeys(source: int, number: int, boards: int, ring: bool) -> list[tuple[int, str]]:
    far, near = -(-(boards - 1) // 2), (boards - 1) // 2
    ahead, back = (boards - 1 - source, source) if not ring else (far, near)
    if ring and number % 2:
        ahead, back = back, ahead
    forward = [((source + hop) % boards, "next") for hop in range(ahead)]
    return forward + [((source - hop) % boards, "previous") for hop in range(back)]


@pytest.mark.parametrize(("rows", "selected"), [(1, 1), (1, 0), (16, 3), (37, 37), (64, 1)])
@pytest.mark.parametrize("config", [LLAMA, GPT2, OPT_POST, NARROW, LLAMA2_7B])
def test_bytes_are_those_of_the_frames(config, rows: int, selected: int) -> None:
    for boards, cables in ((2, ring(2)[:1]), (4, ring(4)), (4, ring(8)), (8, ring(8))):
        plan = make_plan(config, overlay(), board(), boards, route=route(cables, boards))
        ports = {"next": plan.route.port_next, "previous": plan.route.port_previous}
        walked = {
            (plan.route.order[rank], ports[way][rank]): tuple(bytes_)
            for (rank, way), bytes_ in walk(plan, rows, selected).items()
        }
        found = plan.link_bytes(rows, selected)
        counted = {end: (sent.frames, sent.payload) for end, sent in found.items()}
        assert {end: sums for end, sums in counted.items() if sums[0]} == walked


def test_one_board_sends_nothing() -> None:
    assert make_plan(LLAMA, overlay(), board(), 1).link_bytes(64, 64) == {}


def test_no_rows_send_nothing() -> None:
    found = make_plan(LLAMA, overlay(), board(), 4).link_bytes(0, 0)
    assert len(found) == 8 and all(sent.frames == sent.payload == 0 for sent in found.values())


def test_every_board_receives_what_it_lacks() -> None:
    """On a ring each board's share arrives at the N-1 others exactly once."""
    plan = make_plan(LLAMA, overlay(), board(), 8)
    width = sum(c.columns * c.element_bytes for c in plan.collectives)
    width += 8 * abi.dtype("vote").itemsize
    assert sum(sent.payload for sent in plan.link_bytes(1, 1).values()) == 7 * width
