"""The boards and cables that may still be used, after some were lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lora_host.cluster_file import BoardEntry, Cable, ClusterFile, load_cluster
from lora_host.errors import LoraError
from lora_host.selection import spare_entries


@dataclass(frozen=True)
class Lost:
    """What a failure is blamed on: a board, or a cable by its ends. Boards by their index in the
    cluster that failed."""

    board: int | None = None
    cable: tuple[tuple[int, int], tuple[int, int]] | None = None


def blamed(error: LoraError) -> Lost | None:
    """The board or cable that the error names, None for neither."""
    failure = error.failure
    if failure is None or failure.board is None:
        return None
    if None in (failure.port, failure.peer_board, failure.peer_port):
        return Lost(board=failure.board)
    assert failure.port is not None
    assert failure.peer_board is not None and failure.peer_port is not None
    ends = (failure.board, failure.port), (failure.peer_board, failure.peer_port)
    return Lost(cable=(min(ends), max(ends)))


class Failover:
    """All boards that the options name, spares included, less what was lost."""

    def __init__(
        self,
        boards: Sequence[BoardEntry],
        cables: Sequence[Cable],
        cluster_file: Path | None,
        spares: Sequence[str],
    ) -> None:
        """`boards` and `cables` of the cluster as opened. A spare of the cluster file has its own
        cables; without a file it takes the place, and so the cables, of a lost board."""
        self._boards = list(boards)
        self._cables = list(cables)
        self._spares = spare_entries(spares, len(boards))
        self._used = list(range(len(boards)))  # boards of the open cluster, in its order
        self._alive = set(self._used)
        if cluster_file is not None and spares:
            self._take_from(load_cluster(cluster_file))

    def _take_from(self, file: ClusterFile) -> None:
        """The file's boards in use and its spares, with all cables among them."""
        uris = {entry.uri for entry in (*self._boards, *self._spares)}
        kept = file.only(i for i, entry in enumerate(file.boards) if entry.uri in uris)
        opened = [entry.uri for entry in self._boards]
        self._boards, self._cables, self._spares = list(kept.boards), list(kept.cables), []
        places = [entry.uri for entry in self._boards]
        self._used = [places.index(uri) for uri in opened]
        self._alive = set(range(len(self._boards)))

    @property
    def count(self) -> int:
        """Boards that are left."""
        return len(self._alive)

    def name(self, lost: Lost) -> str:
        """The board or cable in words: boards by their URIs and their numbers when the engine was
        opened, which stay the same when others are left out."""
        if lost.board is not None:
            return self._named(lost.board)
        assert lost.cable is not None
        ends = [f"{self._named(board)} port {port}" for board, port in lost.cable]
        return "the cable from " + " to ".join(ends)

    def _named(self, board: int) -> str:
        place = self._used[board]
        return f"board {place} ({self._boards[place].uri})"

    def leave_out(self, lost: Lost) -> None:
        """Use this board or cable no more. A spare replaces a board where there is one."""
        if lost.board is not None:
            place = self._used[lost.board]
            if self._spares:
                self._boards[place] = self._spares.pop(0)
            else:
                self._alive.discard(place)
            return
        assert lost.cable is not None
        gone = {(self._used[board], port) for board, port in lost.cable}
        self._cables = [c for c in self._cables if not gone & set(_ends(c))]

    def candidates(self, counts: Sequence[int]) -> Iterator[tuple[int, ClusterFile]]:
        """Numbers of boards to try, the largest first, each with all boards that are left."""
        file = ClusterFile(tuple(self._boards), tuple(self._cables), "the boards that remain")
        alive = file.only(self._alive) if self._alive else None
        for count in sorted(counts, reverse=True):
            if alive is not None and count <= len(alive.boards):
                yield count, alive

    def use(self, chosen: Sequence[int]) -> None:
        """The cluster now has these boards: ascending indices among those that are left."""
        places = sorted(self._alive)
        self._used = [places[index] for index in chosen]


def _ends(cable: Cable) -> tuple[tuple[int, int], tuple[int, int]]:
    return (cable.board_a, cable.port_a), (cable.board_b, cable.port_b)
