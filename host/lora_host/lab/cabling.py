"""The actual cabling of a cluster, found by test frames, and its differences from a cabling map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from ..cluster_file import BoardEntry, Cable
from ..records import LinkFound

Port = tuple[int, int]  # board, port


@dataclass(frozen=True)
class Cabling:
    """`cables` between two boards. `problems`, one line each: loopbacks, wrong bytes, one-way
    links. `silent`: the ports without a channel. `told_apart`: boards have serials of their own;
    without them no cable is named."""

    cables: tuple[Cable, ...]
    problems: tuple[str, ...]
    silent: tuple[Port, ...]
    told_apart: bool = True


def name(port: Port) -> str:
    """A port's name in messages."""
    return f"board {port[0]} port {port[1]}"


def actual(found: Sequence[Sequence[LinkFound]], serials: Sequence[int]) -> Cabling:
    """The cabling derived from the ports' results. `found` is [board][port]; `serials` by board.
    Boards are told apart by serial: of boards with one serial no cable is named."""
    problems = [
        f"boards {', '.join(str(b) for b, one in enumerate(serials) if one == serial)} have one "
        f"serial, {serial}: whose frames arrive cannot be told; expected a serial a card"
        for serial, count in Counter(serials).items()
        if count > 1
    ]
    if problems:
        return Cabling((), tuple(problems), (), told_apart=False)
    board_of = {serial: board for board, serial in enumerate(serials)}
    received: dict[Port, Port] = {}
    silent: list[Port] = []
    for board, ports in enumerate(found):
        for port, link in enumerate(ports):
            here = (board, port)
            if not link.healthy:
                silent.append(here)
            elif link.peer_serial is None or link.peer_port is None:
                problems.append(f"{name(here)}: channel up, but no peer answers")
            elif link.peer_serial not in board_of:
                problems.append(
                    f"{name(here)}: cabled to serial {link.peer_serial} port {link.peer_port}, "
                    "which is not in this cluster"
                )
            else:
                received[here] = (board_of[link.peer_serial], link.peer_port)
            if link.healthy and link.peer_serial is not None and not link.clean:
                problems.append(
                    f"{name(here)}: {link.received} of {link.sent} test frames arrived, "
                    f"{link.bad} of them wrong; change the cable"
                )
    cables: list[Cable] = []
    for here, there in sorted(received.items()):
        if here == there or here[0] == there[0]:
            if here <= there:
                problems.append(f"{name(here)}: a loopback to {name(there)}")
        elif received.get(there) != here:
            problems.append(
                f"{name(here)}: receives from {name(there)}, which does not receive from it"
            )
        elif here < there:
            cables.append(Cable(*here, *there))
    return Cabling(tuple(cables), tuple(problems), tuple(silent))


def ends(cables: Sequence[Cable]) -> dict[Port, Port]:
    """Every port with a cable -> the port at its other end."""
    table: dict[Port, Port] = {}
    for cable in cables:
        a, b = (cable.board_a, cable.port_a), (cable.board_b, cable.port_b)
        table[a], table[b] = b, a
    return table


def compare(cabling: Cabling, expected: Sequence[Cable]) -> list[str]:
    """Differences from the cabling map, one line each: missing cables, cables in the wrong port
    (swapped ports), cables that are not in the map. None where boards cannot be told apart."""
    if not cabling.told_apart:
        return []
    there, lines = ends(cabling.cables), []
    mapped = ends(expected)
    for cable in expected:
        a, b = (cable.board_a, cable.port_a), (cable.board_b, cable.port_b)
        if there.get(a) == b:
            continue
        for end, far in ((a, b), (b, a)):
            actual_end = there.get(end)
            if actual_end is not None:
                swapped = " (the ports of a board are swapped)" if actual_end[0] == far[0] else ""
                lines.append(
                    f"{name(end)}: cabled to {name(actual_end)}, {name(far)} expected{swapped}"
                )
        if a not in there and b not in there:
            lines.append(f"cable {cable} is missing, or both ends are down")
        elif a not in there or b not in there:
            lone = a if a not in there else b
            lines.append(f"{name(lone)}: no cable, or its channel is down")
    for cable in cabling.cables:
        if (cable.board_a, cable.port_a) not in mapped and (
            cable.board_b,
            cable.port_b,
        ) not in mapped:
            lines.append(f"cable {cable} is not expected")
    return lines


def cluster_text(boards: Sequence[BoardEntry], serials: Sequence[int], cabling: Cabling) -> str:
    """A cluster file with the cabling found; without the serial of a board that has none, 0."""
    content = {
        "boards": [
            {"uri": entry.uri} | ({"serial": serial} if serial else {})
            for entry, serial in zip(boards, serials, strict=True)
        ],
        "cables": [vars(cable) for cable in cabling.cables],
    }
    head = "".join(f"# {line}\n" for line in cabling.problems)
    return head + yaml.safe_dump(content, sort_keys=False)
