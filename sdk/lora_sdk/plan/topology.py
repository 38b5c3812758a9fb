"""Finds a ring or path of boards in the cabling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lora_host import abi
from lora_host.cluster_file import Cable
from lora_host.errors import LinkError
from lora_host.naming import counted


@dataclass(frozen=True)
class Route:
    """`order[rank]` is a board; `port_next[rank]` and `port_previous[rank]` are that board's ports
    towards the ranks after and before it, abi.NO_PORT at a path's ends. `ring`: the last rank's
    next is rank 0. `cables` are those that the route uses."""

    order: tuple[int, ...]
    ring: bool
    port_next: tuple[int, ...]
    port_previous: tuple[int, ...]
    cables: tuple[Cable, ...]


@dataclass(frozen=True)
class _End:
    """The far end of a cable, as seen from one board."""

    port: int
    board: int
    far_port: int
    cable: Cable


def route(cables: Sequence[Cable], boards: int) -> Route:
    """The ring of exactly `boards` boards if the cabling has one, otherwise a path of that many.

    A board has two ports, so the cabling is a set of rings and paths. Of several candidates the one
    with the lowest boards is taken. LinkError names what is missing."""
    if boards == 1:
        return Route((0,), False, (abi.NO_PORT,), (abi.NO_PORT,), ())
    ends = _ends(cables)
    runs = [_run(ends, board) for board in _starts(ends)]
    rings = [order for order, closed in runs if closed and len(order) == boards]
    if rings and boards > 2:
        return _make(ends, min(rings), ring=True)
    paths = [path for order, closed in runs for path in _windows(order, closed, boards)]
    if not paths:
        raise _missing(runs, ends, boards)
    return _make(ends, min(paths), ring=False)


def _ends(cables: Sequence[Cable]) -> dict[int, list[_End]]:
    """Each board's cables, lower far board first."""
    ends: dict[int, list[_End]] = {}
    used: set[tuple[int, int]] = set()
    for cable in cables:
        a, b = (cable.board_a, cable.port_a), (cable.board_b, cable.port_b)
        if a[0] == b[0]:
            raise LinkError(f"cable of board {a[0]} leads back to it, expected two boards")
        for board, port in (a, b):
            if not 0 <= port < abi.PORTS:
                raise LinkError(f"cable at board {board} port {port}, expected port 0 or 1")
            if (board, port) in used:
                raise LinkError(f"board {board} port {port} has two cables, expected one")
            used.add((board, port))
        ends.setdefault(a[0], []).append(_End(a[1], b[0], b[1], cable))
        ends.setdefault(b[0], []).append(_End(b[1], a[0], a[1], cable))
    for found in ends.values():
        found.sort(key=lambda end: (end.board, end.port))
    return ends


def _starts(ends: dict[int, list[_End]]) -> list[int]:
    """One board of each ring or path: a path's lower end, a ring's lowest board."""
    starts: list[int] = []
    seen: set[int] = set()
    tips = sorted(board for board, found in ends.items() if _degree(found) == 1)
    for board in [*tips, *sorted(ends)]:
        if board not in seen:
            starts.append(board)
            seen.update(_run(ends, board)[0])
    return starts


def _degree(found: list[_End]) -> int:
    return len({end.board for end in found})


def _run(ends: dict[int, list[_End]], start: int) -> tuple[list[int], bool]:
    """The boards from `start` on, one after another, and whether they form a ring."""
    order = [start]
    while True:
        following = [end.board for end in ends[order[-1]] if end.board not in order]
        if not following:
            break
        order.append(following[0])
    closed = len(order) > 2 and any(end.board == start for end in ends[order[-1]])
    return order, closed


def _windows(order: list[int], closed: bool, boards: int) -> list[list[int]]:
    """Runs of `boards` neighbors in both directions; on a closed run also across its end."""
    if len(order) < boards:
        return []
    line = order + order[: boards - 1] if closed else order
    windows = [line[first : first + boards] for first in range(len(line) - boards + 1)]
    return windows + [window[::-1] for window in windows]


def _make(ends: dict[int, list[_End]], order: list[int], ring: bool) -> Route:
    count = len(order)
    port_next, port_previous = [abi.NO_PORT] * count, [abi.NO_PORT] * count
    cables: list[Cable] = []
    for rank in range(count if ring else count - 1):
        far = (rank + 1) % count
        end = next(end for end in ends[order[rank]] if end.board == order[far])
        port_next[rank], port_previous[far] = end.port, end.far_port
        cables.append(end.cable)
    return Route(tuple(order), ring, tuple(port_next), tuple(port_previous), tuple(cables))


def _missing(
    runs: list[tuple[list[int], bool]], ends: dict[int, list[_End]], boards: int
) -> LinkError:
    if not runs:
        return LinkError(f"the cabling has no cables, expected a ring or path of {boards} boards")
    longest = max((order for order, _ in runs), key=len)
    names = "-".join(str(board) for board in longest)
    tip = longest[-1]
    free = [port for port in range(abi.PORTS) if port not in {end.port for end in ends[tip]}]
    return LinkError(
        f"the cabling has no ring or path of {boards} boards: the longest path is {names} "
        f"({counted(len(longest), 'board')}); add a cable from board {tip} port {free[0]} to a "
        "board outside it, or use fewer boards"
    )
