"""Hosts of boards that decode one model: replicas against stages of layers against tensor
parallelism, modelled.

A split gives every replica as many boards, and these as many stages. A replica lies on one host, or
on whole hosts, whose links join them all in one ring. Then its host reaches the boards of the
others over the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_lab.timing import step as steps
from lora_lab.timing.counted_attention import counted_units
from lora_lab.timing.host_access import generate_accesses
from lora_lab.timing.layout import Layout
from lora_lab.timing.model import check_positions
from lora_lab.timing.prices import Prices, prices
from lora_lab.timing.report import Totals
from lora_lab.timing.target import ArrayTarget, design_notes, make_target
from lora_sdk.plan.partition import BOARD_COUNTS

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

MAX_HOSTS = 64
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
    """`count` hosts of `boards` boards each, of a design. `cross_links`: as of `Layout`, in
    replicas of several stages."""

    design: str
    board: str | None
    count: int
    boards: int
    prices: Prices = field(default_factory=prices)
    cross_links: bool = False
    network: Network = field(default_factory=Network)


@dataclass(frozen=True)
class Load:
    """Greedy decoding at `context` positions a sequence. `requests` at once, None: as many as all
    replicas hold."""

    context: int
    requests: int | None = None


@dataclass(frozen=True)
class Split:
    """`replicas` of `boards` boards in `stages` stages on `hosts` hosts each. `rows`: sequences of
    a replica at this load. `hops`: the most that a block of a layer's gather travels. `link_bytes`:
    of the busiest port, in a step of one row. Times of a lone token, and of a token at the load."""

    boards: int
    stages: int
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
    """All splits that hold the model, by boards of a replica and stages, and why others do not.

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
        for stages in BOARD_COUNTS:
            if stages > min(boards, config.layers):
                break
            replica = f"{counted(boards, 'board')} a replica in {counted(stages, 'stage')}"
            if boards // stages > config.heads:
                refused.append(f"{replica}: the model has {config.heads} query heads")
                continue
            target = _target(
                config, hosts, Layout(boards, stages, hosts.cross_links and stages > 1)
            )
            room = _sequences(target, load.context)
            if room < 1:
                refused.append(f"{replica}: weights and one sequence do not fit in HBM")
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


def _target(config: ModelConfig, hosts: Hosts, layout: Layout) -> ArrayTarget:
    target = make_target(
        hosts.design, hosts.board, config, layout.boards, None, layout.stages, layout.cross_links
    )
    if not isinstance(target, ArrayTarget):
        raise RequestError(
            f"design {hosts.design}: splits are timed for array designs, as own-u280"
        )
    return target


def _sequences(target: ArrayTarget, context: int) -> int:
    """Sequences of `context` positions beside the weights in each board's HBM, at most those of a
    step. KV heads that boards share are held by each of them. Of stages the last one counts."""
    config, machine, layout = target.config, target.machine, target.layout
    weights = layout.board_bytes(config, target.design)
    heads = -(-config.kv_heads // layout.stage_boards)
    each = 2 * layout.layers(config) * heads * config.head_dim * machine.kv_bytes * context
    free = target.facts.capacity_bytes - weights
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
    used = min(hosts.count, spanned * replicas)
    price = hosts.prices.per_second(target.board, boards * replicas, used, target.facts.power_watts)
    return Split(
        boards=boards,
        stages=target.layout.stages,
        hosts=spanned,
        replicas=replicas,
        rows=rows,
        hops=target.layout.hops,
        link_bytes=_received(lone),
        lone_ms=1e3 * (lone.seconds + alone),
        network_ms=1e3 * alone,
        loaded_ms=1e3 * seconds,
        tokens_per_second=rate,
        board_ms_per_token=1e3 * busy,
        joules_per_token=busy * target.facts.power_watts,
        dollars_per_million_tokens=None if price is None else 1e6 * price / rate,
    )


def _received(totals: Totals) -> float:
    return totals.bytes.get("link", 0.0)


def best(found: tuple[Split, ...]) -> dict[str, dict[str, int]]:
    """Boards and stages of a replica of the split with the lowest latency of a lone token, the
    highest throughput, and the lowest cost of a token, or where prices are not known the least time
    of boards."""
    chosen = {
        "latency": min(found, key=lambda split: split.lone_ms),
        "throughput": max(found, key=lambda split: split.tokens_per_second),
        "cost": min(found, key=cost),
    }
    return {goal: {"boards": one.boards, "stages": one.stages} for goal, one in chosen.items()}


def cost(split: Split) -> float:
    """What of a token is to be low: dollars, or where they are not known boards by time."""
    dollars = split.dollars_per_million_tokens
    return split.board_ms_per_token if dollars is None else dollars


def outdone(found: tuple[Split, ...]) -> list[bool]:
    """Of each split, whether another one is no worse in latency, throughput and cost, and better in
    one of them."""
    marks = [(one.lone_ms, -one.tokens_per_second, cost(one)) for one in found]
    return [
        any(other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in marks)
        for own in marks
    ]  # fmt: skip


def cluster_report(config: ModelConfig, model: str, hosts: Hosts, load: Load) -> dict[str, Any]:
    """All of it, for JSON and text."""
    found, refused = splits(config, hosts, load)
    target = _target(config, hosts, Layout(found[0].boards, found[0].stages))
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
        "prices": hosts.prices.as_dict(target.board),
        "cross_links": hosts.cross_links,
        "splits": [
            {**asdict(split), "outdone": worse}
            for split, worse in zip(found, outdone(found), strict=True)
        ],
        "best": best(found),
        "refused": refused,
        "notes": _notes(config, hosts, load, found),
    }


def _notes(config: ModelConfig, hosts: Hosts, load: Load, found: tuple[Split, ...]) -> list[str]:
    targets = [
        _target(config, hosts, Layout(boards, 1))
        for boards in sorted({split.boards // split.stages for split in found})
    ]
    target = targets[0]
    notes = [
        "greedy decoding; prompts, sampling, and the requests' own way over the network are left "
        "out",
    ]
    if hosts.prices.as_dict(target.board)["board_dollars"] is not None:
        notes.append(
            f"cost: boards and hosts over {hosts.prices.years:g} years and electricity at "
            f"{hosts.prices.dollars_per_kwh:g} $/kWh, all the time at this load; prices are "
            "assumptions (--prices)"
        )
    notes += design_notes([(one, load.context) for one in targets])
    if target.design.origin == "own" and counted_units(target.design):
        notes.append(
            "at the load such attention would add that for each row of a step: loaded times, "
            "tokens/s, joules and dollars are of ideal units"
        )
    if any(split.hosts > 1 for split in found):
        network = hosts.network
        notes.append(
            "a replica over several hosts was run with emulated boards alone, not timed: charged "
            "as if one host served all its boards, and a network of "
            f"{1e6 * network.round_trip_s:g} us a round trip and "
            f"{8e-9 * network.bytes_per_second:g} Gb/s, both assumed; a lone token has a "
            f"{generate_accesses().tokens}th of a round trip, since boards choose so many by "
            "themselves"
        )
    if any(split.stages > 1 for split in found):
        how = (
            "each stage is a ring of its own, and a cable joins each board to one of the next "
            "stage: modelled only"
            if hosts.cross_links
            else "a replica's boards are in one ring, in which a stage is a path"
        )
        notes.append(
            f"{how}; stages run one after the other, steps of other rows do not overlap them"
        )
    return notes
