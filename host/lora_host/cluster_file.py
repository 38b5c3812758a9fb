"""Cluster files: a cluster's boards and the cables between their ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import abi
from .data import data_folder
from .device_uri import check_uri
from .errors import LinkError, RequestError
from .naming import counted
from .schema import read_checked

MAX_BOARDS: int = abi.MAX_BOARDS


@dataclass(frozen=True)
class BoardEntry:
    """A board of the cluster: its URI and its expected serial number, None for any."""

    uri: str
    serial: int | None = None


@dataclass(frozen=True)
class Cable:
    """A cable between two ports; boards by their index in the cluster."""

    board_a: int
    port_a: int
    board_b: int
    port_b: int

    def __str__(self) -> str:
        return f"board {self.board_a} port {self.port_a} - board {self.board_b} port {self.port_b}"


@dataclass(frozen=True)
class ClusterFile:
    """A checked cluster file. `name` names file and boards in messages."""

    boards: tuple[BoardEntry, ...]
    cables: tuple[Cable, ...]
    name: str = "a cluster file"

    def only(self, boards: Iterable[int]) -> ClusterFile:
        """A subset of the boards and the cables among them, in the file's order, renumbered."""
        kept = sorted(set(boards))
        if len(kept) == len(self.boards):
            return self
        renumbered = {board: index for index, board in enumerate(kept)}
        cables = tuple(
            Cable(renumbered[c.board_a], c.port_a, renumbered[c.board_b], c.port_b)
            for c in self.cables
            if c.board_a in renumbered and c.board_b in renumbered
        )
        which = ", ".join(map(str, kept))
        name = f"{self.name} (of its {counted(len(self.boards), 'board')} {which})"
        return ClusterFile(tuple(self.boards[board] for board in kept), cables, name)


def load_cluster(path: str | Path) -> ClusterFile:
    """Reads and checks a cluster file. RequestError names the invalid field, URI or serial,
    LinkError the cable."""
    path = Path(path)
    schema = data_folder("boards") / "cluster.schema.json"
    content = read_checked(path, schema, RequestError)
    boards = tuple(BoardEntry(**entry) for entry in content["boards"])
    cables = tuple(Cable(**entry) for entry in content["cables"])
    try:
        for entry in boards:
            check_uri(entry.uri)
        _check_serials(path, boards)
    except RequestError as cause:
        raise RequestError(str(cause), usage=False) from None
    check_cables(cables, len(boards), f"{path}: ")
    return ClusterFile(boards, cables, str(path))


def ring(boards: int) -> tuple[Cable, ...]:
    """Default cabling, a ring: port 1 of board b to port 0 of board b+1. Two boards share one
    cable, one board has none. RequestError if `boards` is out of range."""
    if not 1 <= boards <= MAX_BOARDS:
        raise RequestError(f"{boards} boards requested, 1..{MAX_BOARDS} expected")
    count = {1: 0, 2: 1}.get(boards, boards)
    return tuple(Cable(b, 1, (b + 1) % boards, 0) for b in range(count))


def check_cables(cables: Sequence[Cable], boards: int, prefix: str = "") -> None:
    """LinkError if a cable names an unknown board, a port that is in use, or one board twice."""
    used: dict[tuple[int, int], Cable] = {}
    for cable in cables:
        for board, port in ((cable.board_a, cable.port_a), (cable.board_b, cable.port_b)):
            if not 0 <= board < boards:
                raise LinkError(
                    f"{prefix}cable {cable}: board {board} found, 0..{boards - 1} expected"
                )
            if port not in (0, 1):
                raise LinkError(f"{prefix}cable {cable}: port {port} found, 0 or 1 expected")
            if (board, port) in used:
                raise LinkError(
                    f"{prefix}cable {cable}: board {board} port {port} already has the cable "
                    f"{used[board, port]}"
                )
            used[board, port] = cable
        if cable.board_a == cable.board_b:
            raise LinkError(f"{prefix}cable {cable}: both ends on one board; connect two boards")


def _check_serials(path: Path, boards: Sequence[BoardEntry]) -> None:
    seen: dict[int, int] = {}
    for index, entry in enumerate(boards):
        if entry.serial is None:
            continue
        if entry.serial in seen:
            raise RequestError(
                f"{path}: boards.{index}.serial: {entry.serial} is board {seen[entry.serial]}'s "
                "already; serial numbers are unique"
            )
        seen[entry.serial] = index
