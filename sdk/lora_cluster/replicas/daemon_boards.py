"""Which boards of which daemons each replica has, and the cables that emulated ones need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lora_cluster.replicas.node_boards import resource
from lora_host.cluster_file import ring
from lora_host.device_uri import EMULATED_SCHEME, RemoteUri, canonical, split_remote
from lora_host.errors import RequestError
from lora_host.naming import counted

DAEMON = "boardd:"
"""Ray's name for a daemon's place is this and the address: the node that declares it has one."""


def split_address(address: str) -> RemoteUri:
    """The parts of a daemon's address, "tcp:HOST:PORT" or "unix:PATH". RequestError."""
    try:
        remote = split_remote(f"{address}/{EMULATED_SCHEME}:any")
    except RequestError:
        remote = None
    if remote is None or f"{remote.scheme}:{remote.where}" != address:
        raise RequestError(f"board daemon {address!r:.100}; expected tcp:HOST:PORT or unix:PATH")
    return remote


def declared(nodes: Sequence[Mapping[str, object]], kind: str) -> dict[str, int]:
    """Addresses of the daemons that live nodes declare, as `ray.nodes()` names them, and how many
    boards of the kind each of these nodes has."""
    found: dict[str, int] = {}
    for node in nodes:
        known = node["Resources"]
        if node["Alive"] and isinstance(known, Mapping):
            for name in known:
                if name.startswith(DAEMON):
                    found[name.removeprefix(DAEMON)] = int(known.get(resource(kind), 0))
    return found


@dataclass(frozen=True)
class BoardPlace:
    """A board: the number of its daemon, and its number there."""

    daemon: int
    board: int


@dataclass(frozen=True)
class DaemonBoards:
    """Boards of daemons, in their order, cut into replicas of as many boards each. `counts`: boards
    of each daemon."""

    addresses: tuple[str, ...]
    counts: tuple[int, ...]
    kind: str
    replicas: int
    boards: int

    def of_replica(self, index: int) -> list[BoardPlace]:
        """Its boards, in the order of its ring."""
        return self._all()[index * self.boards : (index + 1) * self.boards]

    def cables(self, daemon: int) -> list[str]:
        """What `lora boardd serve --cable` is told there if its boards are emulated: a ring for
        each replica. The daemon of a cable's first end names it."""
        found = []
        for index in range(self.replicas):
            places = self.of_replica(index)
            for cable in ring(self.boards):
                a, b = places[cable.board_a], places[cable.board_b]
                if a.daemon != daemon:
                    continue
                far, joint = "", "-"
                if b.daemon != daemon:
                    far, joint = f"{self.addresses[b.daemon]}/emu:{self.kind}/", "="
                found.append(f"{a.board}.{cable.port_a}{joint}{far}{b.board}.{cable.port_b}")
        return found

    def _all(self) -> list[BoardPlace]:
        return [
            BoardPlace(daemon, board)
            for daemon, count in enumerate(self.counts)
            for board in range(count)
        ]


def chosen_boards(
    addresses: Sequence[str], known: Mapping[str, int], kind: str, replicas: int, boards: int
) -> DaemonBoards:
    """The boards of these daemons for so many replicas. `known`: see `declared`. RequestError: no
    node declares one of them, one is named twice, or their boards are too few."""
    if len({canonical(f"{address}/emu:{kind}") for address in addresses}) < len(addresses):
        raise RequestError(f"{', '.join(addresses)}: a board daemon is named twice")
    for address in addresses:
        if address not in known:
            others = ", ".join(sorted(known)) or "none"
            raise RequestError(
                f"no node declares the board daemon {address} (declared: {others}); start one with "
                f"lora ray start --boardd {address}",
                usage=False,
            )
        if not known[address]:
            raise RequestError(
                f"the node of {address} has no boards of kind {kind}; see lora ray status",
                usage=False,
            )
    counts = tuple(known[address] for address in addresses)
    if sum(counts) < replicas * boards:
        found = ", ".join(f"{a}: {n}" for a, n in zip(addresses, counts, strict=True))
        raise RequestError(
            f"{counted(replicas, 'replica')} of {counted(boards, 'board')} need "
            f"{replicas * boards}; found {sum(counts)} {kind} ({found})",
            usage=False,
        )
    return DaemonBoards(tuple(addresses), counts, kind, replicas, boards)
