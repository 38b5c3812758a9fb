"""From what ports received to cables, and from two cablings to their differences."""

from __future__ import annotations

from lora_host.cluster_file import BoardEntry, Cable, ring
from lora_host.lab.cabling import actual, cluster_text, compare
from lora_host.records import LinkFound

SERIALS = (11, 12, 13)
UP, DOWN = 0x11FF, 0x010F
Port = tuple[int, int]


def received(cables: dict[Port, Port], boards: int = 3) -> list[list[LinkFound]]:
    found = []
    for board in range(boards):
        row = []
        for port in range(2):
            far = cables.get((board, port))
            if far is None:
                row.append(LinkFound(DOWN, 0, 0, 0, None, None))
            else:
                row.append(LinkFound(UP, 64, 64, 0, SERIALS[far[0]], far[1]))
        found.append(row)
    return found


def both(*cables: Cable) -> dict[Port, Port]:
    table: dict[Port, Port] = {}
    for c in cables:
        table[c.board_a, c.port_a] = (c.board_b, c.port_b)
        table[c.board_b, c.port_b] = (c.board_a, c.port_a)
    return table


def test_a_ring_is_found_and_equals_its_map() -> None:
    cabling = actual(received(both(*ring(3))), SERIALS)
    assert set(cabling.cables) == {Cable(0, 1, 1, 0), Cable(1, 1, 2, 0), Cable(0, 0, 2, 1)}
    assert not cabling.problems and not cabling.silent
    assert compare(cabling, ring(3)) == []


def test_swapped_ports_are_named() -> None:
    cabling = actual(received(both(Cable(0, 1, 1, 1))), SERIALS)
    lines = compare(cabling, [Cable(0, 1, 1, 0)])
    assert lines[0] == (
        "board 0 port 1: cabled to board 1 port 1, board 1 port 0 expected "
        "(the ports of a board are swapped)"
    )


def test_missing_cables_and_loopbacks_are_named() -> None:
    cabling = actual(received(both(Cable(0, 0, 0, 1))), SERIALS)
    assert cabling.problems == ("board 0 port 0: a loopback to board 0 port 1",)
    assert compare(cabling, [Cable(1, 1, 2, 0)]) == [
        "cable board 1 port 1 - board 2 port 0 is missing, or both ends are down"
    ]
    assert (1, 0) in cabling.silent and (0, 0) not in cabling.silent


def test_a_cable_that_the_map_lacks() -> None:
    cabling = actual(received(both(Cable(0, 1, 1, 0))), SERIALS)
    assert compare(cabling, []) == ["cable board 0 port 1 - board 1 port 0 is not expected"]


def test_wrong_bytes_one_way_links_and_strangers() -> None:
    found = received({(0, 1): (1, 0), (1, 0): (2, 0)}, boards=2)
    found[0][1] = LinkFound(UP, 64, 60, 3, 12, 0)
    found[1][1] = LinkFound(UP, 64, 64, 0, 99, 1)
    problems = actual(found, SERIALS).problems
    assert any("60 of 64 test frames arrived, 3 of them wrong" in line for line in problems)
    assert any(
        "receives from board 1 port 0, which does not receive from it" in line for line in problems
    )
    assert any("serial 99 port 1, which is not in this cluster" in line for line in problems)


def test_the_cluster_file_holds_what_was_found() -> None:
    cabling = actual(received(both(Cable(0, 1, 1, 0)), boards=2), SERIALS[:2])
    text = cluster_text([BoardEntry("emu:u280", None)] * 2, SERIALS[:2], cabling)
    assert "serial: 12" in text and "port_a: 1" in text


def test_boards_with_one_serial_are_named_and_no_cable_is() -> None:
    found = received(both(Cable(0, 1, 1, 0)), boards=2)
    cabling = actual(found, [0, 0])
    assert cabling.cables == ()
    assert compare(cabling, [Cable(0, 1, 1, 0)]) == []
    text = cluster_text([BoardEntry("emu:u280", None)] * 2, [0, 0], cabling)
    assert "- uri: emu:u280" in text and "serial:" not in text
    assert cabling.problems == (
        "boards 0, 1 have one serial, 0: whose frames arrive cannot be told; "
        "expected a serial a card",
    )
