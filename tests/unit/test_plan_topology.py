"""Routes in cablings: rings, paths, parts of them, and what is missing."""

from __future__ import annotations

import pytest

from lora_host import abi
from lora_host.cluster_file import Cable
from lora_host.errors import LinkError
from lora_sdk.plan.placement import default_route
from lora_sdk.plan.topology import Route, route

NONE = abi.NO_PORT


def ring(count: int) -> list[Cable]:
    return [Cable(b, 1, (b + 1) % count, 0) for b in range(count)]


def check(found: Route, cables: list[Cable]) -> None:
    """Every step of the route is a cable, seen from both ends."""
    count = len(found.order)
    ends = {(c.board_a, c.port_a): (c.board_b, c.port_b) for c in cables}
    ends |= {far: near for near, far in ends.items()}
    for rank in range(count if found.ring else count - 1):
        far = (rank + 1) % count
        near_end = (found.order[rank], found.port_next[rank])
        assert ends[near_end] == (found.order[far], found.port_previous[far])
    if not found.ring:
        assert found.port_next[-1] == found.port_previous[0] == NONE
    assert len(found.cables) == (count if found.ring else count - 1)


def test_one_board_needs_no_cables() -> None:
    assert route([], 1) == Route((0,), False, (NONE,), (NONE,), ())


@pytest.mark.parametrize("count", [4, 8])
def test_a_whole_ring_is_used_as_one(count: int) -> None:
    found = route(ring(count), count)
    check(found, ring(count))
    assert found.ring and found.order == tuple(range(count))


def test_two_boards_use_one_cable_even_where_there_are_two() -> None:
    cables = [Cable(0, 1, 1, 0), Cable(1, 1, 0, 0)]
    found = route(cables, 2)
    check(found, cables)
    assert not found.ring and found.order == (0, 1)


def test_part_of_a_ring_is_a_path() -> None:
    found = route(ring(8), 4)
    check(found, ring(8))
    assert not found.ring and found.order == (0, 1, 2, 3)


def test_ports_may_be_cabled_either_way_round() -> None:
    cables = [Cable(0, 0, 2, 0), Cable(2, 1, 1, 1), Cable(1, 0, 3, 0)]
    found = route(cables, 4)
    check(found, cables)
    assert found.order == (0, 2, 1, 3)


def test_a_ring_of_the_right_size_is_preferred_to_a_path() -> None:
    shifted = [Cable(c.board_a + 8, c.port_a, c.board_b + 8, c.port_b) for c in ring(4)]
    assert route(ring(8) + shifted, 4).order == (8, 9, 10, 11)


def test_the_default_route_is_that_of_the_default_cabling() -> None:
    for count in (1, 2, 4, 8):
        cables = ring(count) if count > 2 else ring(2)[: count - 1]
        found, default = route(cables, count), default_route(count)
        assert (found.order, found.ring) == (default.order, default.ring)
        assert (found.port_next, found.port_previous) == (default.port_next, default.port_previous)


def test_a_broken_ring_names_where_a_cable_is_missing() -> None:
    cables = [Cable(0, 1, 1, 0), Cable(2, 1, 3, 0)]
    with pytest.raises(LinkError, match=r"no ring or path of 4 boards: .* 0-1 .*board 1 port 1"):
        route(cables, 4)


def test_no_cables_at_all() -> None:
    with pytest.raises(LinkError, match="has no cables, expected a ring or path of 2 boards"):
        route([], 2)


@pytest.mark.parametrize(
    ("cables", "message"),
    [
        ([Cable(0, 1, 0, 0)], "cable of board 0 leads back to it"),
        ([Cable(0, 2, 1, 0)], "board 0 port 2, expected port 0 or 1"),
        ([Cable(0, 1, 1, 0), Cable(0, 1, 2, 0)], "board 0 port 1 has two cables"),
    ],
)
def test_impossible_cablings_are_refused(cables: list[Cable], message: str) -> None:
    with pytest.raises(LinkError, match=message):
        route(cables, 2)
