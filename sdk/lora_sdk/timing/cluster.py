"""Hosts of boards that decode one model: replicas against tensor parallelism, modelled.

A split gives every replica as many boards. A replica lies on one host, or on whole hosts, whose
links join them all in one ring. Then its host reaches the boards of the others over the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.plan.partition import BOARD_COUNTS
from lora_sdk.timing import step as steps
from lora_sdk.timing.host_access import generate_accesses
from lora_sdk.timing.model import check_positions
from lora_sdk.timing.report import Totals
from lora_sdk.timing.shape import block_weights, head_weights
from lora_sdk.timing.target import ArrayTarget, make_target

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

MAX_HOSTS = 64
YEARS = 3  # over which a board's price is spread
_YEAR = 365 * 24 * 3600
RECORD_BYTES = {name: abi.dtype(name).itemsize for name in ("step", "row", "kv_op")}


@dataclass(frozen=True)
class Network:
    """Between hosts; assumed, since no cluster over hosts has been measured: a round trip of a
    message and its answer, and bytes a second of a host's port."""

    round_trip_s: float = 50e-6
    bytes_per_second: float = 25e9 / 8

    def seconds(self, rows: int, remote_boards: int, hosts: int) -> float:
        """What a step of `rows` rows adds: a round trip to all other hosts at once, and each remote
        board's step block and records through the first host's port."""
        if hosts < 2:
            return 0.0
        block = RECORD_BYTES["step"] + rows * (RECORD_BYTES["row"] + RECORD_BYTES["kv_op"])
        sent = remote_boards * (block + abi.RECORDS_BYTES)
        return self.round_trip_s + sent / self.bytes_per_second


@dataclass(frozen=True)
class Hosts:
    """`count` hosts of `boards` boards each, of a design; `dollars`: of a board, None unknown."""

    design: str
    board: str | None
    count: int
    boards: int
    dollars: float | None = None
    network: Network = field(default_factory=Network)


@dataclass(frozen=True)
class Load:
    """Greedy decoding at `context` positions a sequence. `requests` at once, None: as many as all
    replicas hold."""

    context: int
    requests: int | None = None


@dataclass(frozen=True)
class Split:
    """`replicas` of `boards` boards on `hosts` hosts each. `rows`: sequences of a replica at this
    load. `hops`: the most that a block travels. `link_bytes`: of the busiest port, in
    a step of one row. Times of a lone token, and of a token at the load."""

    boards: int
    hosts: int
    replicas: int
    rows: int
    hops: int
    link_bytes: float
    lone_ms: float
    network_ms: float
    loaded_ms: float
    tokens_per_second: float
    board_ms_per_token: float
    joules_per_token: float
    dollars_per_million_tokens: float | None


def splits(config: ModelConfig, hosts: Hosts, load: Load) -> tuple[tuple[Split, ...], list[str]]:
    """All splits that hold the model, by boards of a replica, and why others do not.

    RequestError: a number out of range, a design without several boards, or no split at all."""
    if not 1 <= hosts.count <= MAX_HOSTS:
        raise RequestError(f"{hosts.count} hosts: expected 1 to {MAX_HOSTS}")
    if not 1 <= hosts.boards <= abi.MAX_BOARDS:
        raise RequestError(f"boards a host {hosts.boards}: expected 1 to {abi.MAX_BOARDS}")
    if load.requests is not None and load.requests < 1:
        raise RequestError(f"{load.requests} requests at once: expected at least 1")
    if load.context < 1:
        raise RequestError(f"context {load.context}: expected at least 1")
    check_positions(config, load.context)
    found: list[Split] = []
    refused: list[str] = []
    for boards in BOARD_COUNTS:
        spanned, replicas = _place(hosts, boards)
        if not replicas:
            continue
        if boards > config.heads:
            refused.append(
                f"{counted(boards, 'board')} a replica: the model has {config.heads} query heads"
            )
            continue
        target = _target(config, hosts, boards)
        room = _sequences(target, load.context)
        if room < 1:
            replica = counted(boards, "board")
            refused.append(f"{replica} a replica: weights and one sequence do not fit in HBM")
            continue
        found.append(_split(target, hosts, load, spanned, replicas, room))
    if not found:
        raise RequestError(
            f"no split of {hosts.count} hosts of {counted(hosts.boards, 'board')} holds the model: "
            + "; ".join(refused)
        )
    return tuple(found), refused


def _place(hosts: Hosts, boards: int) -> tuple[int, int]:
    """(hosts of a replica, replicas). A replica larger than a host takes whole hosts."""
    if boards <= hosts.boards:
        return 1, hosts.count * (hosts.boards // boards)
    spanned = -(-boards // hosts.boards)
    return spanned, hosts.count // spanned


def _target(config: ModelConfig, hosts: Hosts, boards: int) -> ArrayTarget:
    target = make_target(hosts.design, hosts.board, config, boards)
    if not isinstance(target, ArrayTarget):
        raise RequestError(
            f"design {hosts.design}: splits are timed for array designs, as own-u280"
        )
    return target


def _sequences(target: ArrayTarget, context: int) -> int:
    """Sequences of `context` positions beside the weights in each board's HBM, at most those of a
    step. KV heads that boards share are held by each of them."""
    config, machine = target.config, target.machine
    weights = (block_weights(config) + head_weights(config)) * target.design.weight_bytes
    heads = -(-config.kv_heads // target.boards)
    each = 2 * config.layers * heads * config.head_dim * machine.kv_bytes * context
    free = target.facts.capacity_bytes - weights / target.boards
    return min(abi.MAX_ROWS, int(max(0.0, free) // each))


def _split(
    target: ArrayTarget, hosts: Hosts, load: Load, spanned: int, replicas: int, room: int
) -> Split:
    boards, network = target.boards, hosts.network
    rows = room if load.requests is None else min(room, -(-load.requests // replicas))
    served = rows * replicas if load.requests is None else min(rows * replicas, load.requests)
    remote = boards - min(boards, hosts.boards)
    lone = target.decode(load.context)
    alone = network.seconds(1, remote, spanned)
    if target.overheads is not None:  # boards choose greedy tokens of one row by themselves
        alone /= generate_accesses().tokens
    loaded = target.run(steps.beams(rows, 1, load.context, 0)) if rows > 1 else lone
    seconds = loaded.seconds + (network.seconds(rows, remote, spanned) if rows > 1 else alone)
    rate = served / seconds
    busy = boards * replicas / rate
    price = hosts.dollars
    return Split(
        boards=boards,
        hosts=spanned,
        replicas=replicas,
        rows=rows,
        hops=boards // 2,
        link_bytes=_received(lone),
        lone_ms=1e3 * (lone.seconds + alone),
        network_ms=1e3 * alone,
        loaded_ms=1e3 * seconds,
        tokens_per_second=rate,
        board_ms_per_token=1e3 * busy,
        joules_per_token=busy * target.facts.power_watts,
        dollars_per_million_tokens=None if price is None else 1e6 * busy * price / (YEARS * _YEAR),
    )


def _received(totals: Totals) -> float:
    return totals.bytes.get("link", 0.0)


def best(found: tuple[Split, ...]) -> dict[str, int]:
    """Boards a replica of the split with the lowest latency of a lone token, the highest throughput
    and the lowest cost of a token. All boards cost the same, so the cost is boards by time."""
    return {
        "latency": min(found, key=lambda split: split.lone_ms).boards,
        "throughput": max(found, key=lambda split: split.tokens_per_second).boards,
        "cost": min(found, key=lambda split: split.board_ms_per_token).boards,
    }


def cluster_report(config: ModelConfig, model: str, hosts: Hosts, load: Load) -> dict[str, Any]:
    """All of it, for JSON and text."""
    found, refused = splits(config, hosts, load)
    target = _target(config, hosts, found[0].boards)
    return {
        "label": "modelled",
        "design": target.name,
        "board": target.board,
        "model": model,
        "hosts": hosts.count,
        "boards_per_host": hosts.boards,
        "context": load.context,
        "requests": load.requests,
        "network": asdict(hosts.network),
        "splits": [asdict(split) for split in found],
        "best": best(found),
        "refused": refused,
        "notes": _notes(target, hosts, found),
    }


def _notes(target: ArrayTarget, hosts: Hosts, found: tuple[Split, ...]) -> list[str]:
    notes = [
        "greedy decoding; prompts, sampling, the requests' own way over the network, hosts and "
        "their power are left out"
    ]
    if target.design.origin == "own":
        notes.append("this design is not built: its time and resources are modelled only")
    if any(split.hosts > 1 for split in found):
        network = hosts.network
        notes.append(
            "nothing here runs a replica over several hosts: charged as if one host served all its "
            f"boards, and a network of {1e6 * network.round_trip_s:g} us a round trip and "
            f"{8e-9 * network.bytes_per_second:g} Gb/s, both assumed"
        )
    notes.append("a replica's boards are in one ring; stages of layers are not modelled")
    return notes
