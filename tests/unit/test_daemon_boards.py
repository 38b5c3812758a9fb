"""Boards of daemons for replicas: who has which, and the cables between emulated ones."""

from __future__ import annotations

import pytest

from lora_cluster.replicas.daemon_boards import DaemonBoards, chosen_boards, declared, split_address
from lora_host.boardd.settings import FarCable, parse_cables
from lora_host.cluster_file import Cable, ring
from lora_host.errors import RequestError

A, B, C = "tcp:a:1", "tcp:b:2", "unix:/run/c.sock"


def all_cables(boards: DaemonBoards) -> set[Cable]:
    """The cables of all daemons, boards numbered through."""
    first = [sum(boards.counts[:daemon]) for daemon in range(len(boards.counts))]
    found = []
    for daemon, count in enumerate(boards.counts):
        texts = boards.cables(daemon)
        near, far = parse_cables(texts, count) if texts else ((), ())
        found += [
            Cable(first[daemon] + one.board_a, one.port_a, first[daemon] + one.board_b, one.port_b)
            for one in near
        ]
        found += [far_cable(boards, first, first[daemon], one) for one in far]
    assert len(set(found)) == len(found)
    return set(found)


def far_cable(boards: DaemonBoards, first: list[int], own: int, cable: FarCable) -> Cable:
    address, number = cable.uri.split("/emu:u280/")
    there = first[boards.addresses.index(address)] + int(number)
    return Cable(own + cable.board, cable.port, there, cable.far_port)


@pytest.mark.parametrize(
    ("counts", "replicas", "boards"),
    [((2, 2), 1, 4), ((1, 1), 1, 2), ((2, 2), 2, 2), ((3, 1, 4), 2, 4), ((3, 3), 3, 2),
     ((8, 8), 1, 16), ((4, 4), 8, 1)],
)  # fmt: skip
def test_each_replica_has_a_ring(counts: tuple[int, ...], replicas: int, boards: int) -> None:
    made = DaemonBoards((A, B, C)[: len(counts)], counts, "u280", replicas, boards)
    expected = {
        Cable(*(index * boards + c.board_a, c.port_a, index * boards + c.board_b, c.port_b))
        for index in range(replicas)
        for c in ring(boards)
    }
    assert all_cables(made) == expected
    places = [place for index in range(replicas) for place in made.of_replica(index)]
    assert len(set(places)) == replicas * boards
    assert all(place.board < counts[place.daemon] for place in places)


def test_nodes_declare_daemons() -> None:
    nodes = [
        {"Alive": True, "Resources": {f"boardd:{A}": 1.0, "fpga_u280": 4.0, "CPU": 1.0}},
        {"Alive": False, "Resources": {f"boardd:{B}": 1.0, "fpga_u280": 4.0}},
        {"Alive": True, "Resources": {f"boardd:{C}": 1.0}},
    ]
    assert declared(nodes, "u280") == {A: 4, C: 0}


@pytest.mark.parametrize(
    ("addresses", "known", "message"),
    [
        ((A, B), {A: 2}, r"no node declares the board daemon tcp:b:2 \(declared: tcp:a:1\)"),
        ((A, "tcp:A:1"), {A: 2}, "named twice"),
        ((A,), {A: 0}, "the node of tcp:a:1 has no boards of kind u280"),
        ((A, B), {A: 2, B: 1}, r"2 replicas of 2 boards need 4; found 3 u280 \(tcp:a:1: 2, "),
    ],
)
def test_what_cannot_be_is_refused(
    addresses: tuple[str, ...], known: dict[str, int], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        chosen_boards(addresses, known, "u280", 2, 2)


@pytest.mark.parametrize("address", ["tcp:a", "tcp:a:1/", "a:1", "unix:", "tcp:a:99999", ""])
def test_a_bad_address_is_named(address: str) -> None:
    with pytest.raises(RequestError, match="expected tcp:HOST:PORT or unix:PATH"):
        split_address(address)
