"""What boards, links and the KV cache tell at a scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from lora_sdk.kv.pages import PAGE_POSITIONS

if TYPE_CHECKING:
    from lora_host.records import EccCounts
    from lora_sdk.engine.engine import Engine
    from lora_sdk.kv.kv_statistics import HostUse, KvUse
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.recovery.scrubber import ScrubUse
    from lora_sdk.serve.served_board import ServedBoard

_WAIT = 0.2  # seconds; the boards' own loop may hold them for longer


@dataclass(frozen=True)
class PortReading:
    """A port with a cable: whether its link is up, frames received and those with errors so far,
    and the port at the cable's other end."""

    board: int
    port: int
    up: bool
    frames: int
    errors: int
    peer_board: int
    peer_port: int

    def moved(self, first: int) -> PortReading:
        """With boards numbered from `first` on."""
        return replace(self, board=self.board + first, peer_board=self.peer_board + first)


@dataclass(frozen=True)
class PrefillCounts:
    """Prompts that a worker computed, and their tokens, by whether K and V are the boards' own."""

    exact_prompts: int = 0
    exact_tokens: int = 0
    fast_prompts: int = 0
    fast_tokens: int = 0

    @classmethod
    def of(cls, engine: Engine) -> PrefillCounts:
        """Of an engine; zeros without a worker."""
        use = engine.prefill_use
        if use is None:
            return cls()
        counts = (use.prompts, use.tokens)
        return cls(0, 0, *counts) if use.fast else cls(*counts)


@dataclass(frozen=True)
class BoardReading:
    """Counts at one time. `links`: of all ports with cables; `memory`: by board."""

    boards: int
    steps: int
    redone: int
    frames_dropped: int
    links: tuple[PortReading, ...]
    memory: tuple[EccCounts | None, ...]
    kv: KvUse
    weights: ScrubUse | None
    notices: int
    in_doubt: int
    drafts: int
    drafted: int
    accepted: int
    prefill: PrefillCounts = PrefillCounts()


def read_boards(engine: Engine) -> BoardReading:
    """Ask the boards; waits for the step that runs."""
    cluster, speculation = engine.cluster, engine.speculation
    stats = cluster.stats()
    links = []
    for cable in cluster.cables:
        ends = ((cable.board_a, cable.port_a), (cable.board_b, cable.port_b))
        for (board, port), peer in (ends, ends[::-1]):
            status = cluster.link_status(board, port)
            links.append(
                PortReading(
                    board, port, status.healthy, status.frames_received,
                    status.frames_with_errors, *peer,
                )
            )  # fmt: skip
    return BoardReading(
        cluster.size,
        stats.steps,
        engine.redone_steps,
        stats.frames_dropped,
        tuple(links),
        tuple(cluster.ecc(board) for board in range(cluster.size)),
        engine.kv_use,
        engine.scrubbed,
        engine.weight_notices.count,
        engine.weight_notices.ended,
        speculation.verifications if speculation else 0,
        sum(speculation.rows.values()) if speculation else 0,
        sum(speculation.accepted.values()) if speculation else 0,
        PrefillCounts.of(engine),
    )


def board_rows(
    plan: Plan, boards: Sequence[ServedBoard], reading: BoardReading | None, first: int = 0
) -> Iterator[dict[str, object]]:
    """An engine's boards by rank, for `/status`; its ranks are counted from `first` on. Bytes of a
    bank are those that the plan reserves."""
    ranks = {planned.board: first + planned.rank for planned in plan.boards}
    links = [] if reading is None else [one for one in reading.links if one.peer_board in ranks]
    memory = {} if reading is None else dict(enumerate(reading.memory))
    for planned in plan.boards:
        counts = memory.get(planned.board)
        yield {
            "rank": ranks[planned.board],
            **boards[planned.board]._asdict(),
            "banks": [
                {"bank": plan.board.bank_name(use.bank), "used": use.reserved, "usable": use.usable}
                for use in planned.use
            ],
            "links": [
                {
                    "port": link.port,
                    "up": link.up,
                    "frames": link.frames,
                    "errors": link.errors,
                    "peer": {"rank": ranks[link.peer_board], "port": link.peer_port},
                }
                for link in sorted(links, key=lambda link: link.port)
                if link.board == planned.board
            ],
            "memory_errors": {
                "corrected": sum(counts.corrected.values()) if counts else 0,
                "uncorrected": sum(counts.uncorrected.values()) if counts else 0,
            },
        }


class BoardCollector(Collector):
    """The last reading as metrics. `refresh` takes a new one, or leaves the last where the boards
    are busy for long."""

    def __init__(self, new_tokens: Callable[[], int]) -> None:
        self._new_tokens = new_tokens  # that came so far
        self._reading: BoardReading | None = None
        self._task: asyncio.Future[BoardReading] | None = None

    async def refresh(self, read: Callable[[], BoardReading]) -> BoardReading | None:
        """The newest reading, taken in a thread; None before the first."""
        if self._task is None:
            self._task = asyncio.ensure_future(asyncio.to_thread(read))
        task = self._task
        await asyncio.wait({task}, timeout=_WAIT)
        if task.done():
            self._task = None
            if task.exception() is None:
                self._reading = task.result()
        return self._reading

    def collect(self) -> Iterator[Metric]:
        reading = self._reading
        if reading is None:
            return
        yield from _pages(reading.kv)
        computed = reading.kv.looked_up - reading.kv.cached_tokens + self._new_tokens()
        yield HistogramMetricFamily(
            "vllm:iteration_tokens_total",
            "Tokens of steps, counted as a whole",
            [("+Inf", reading.steps)],
            computed,
        )
        yield GaugeMetricFamily("lora_boards", "Boards that are open", reading.boards)
        yield CounterMetricFamily("lora_steps", "Steps run on the boards", reading.steps)
        yield CounterMetricFamily("lora_redone_steps", "Steps that were redone", reading.redone)
        yield CounterMetricFamily(
            "lora_frames_dropped", "Frames dropped in redone steps", reading.frames_dropped
        )
        if reading.weights is not None:
            yield from _sums(reading.weights)
            yield from _notices(reading)
        yield CounterMetricFamily(
            "vllm:spec_decode_num_drafts", "Verifications of drafts", reading.drafts
        )
        yield CounterMetricFamily(
            "vllm:spec_decode_num_draft_tokens", "Drafted tokens", reading.drafted
        )
        yield CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens", "Accepted drafts", reading.accepted
        )
        yield from _prefills(reading.prefill)
        yield from _links(reading)
        yield from _memory(reading)


def _prefills(counts: PrefillCounts) -> Iterator[Metric]:
    prompts = CounterMetricFamily(
        "lora_prefill_prompts", "Prompts that a worker computed", labels=["mode"]
    )
    tokens = CounterMetricFamily("lora_prefill_tokens", "Tokens of these", labels=["mode"])
    for mode in ("exact", "fast"):
        prompts.add_metric([mode], getattr(counts, f"{mode}_prompts"))
        tokens.add_metric([mode], getattr(counts, f"{mode}_tokens"))
    yield from (prompts, tokens)


def _sums(use: ScrubUse) -> Iterator[Metric]:
    yield CounterMetricFamily("lora_weights_summed", "Bytes of weights summed by boards", use.bytes)
    yield CounterMetricFamily("lora_weights_passes", "Times that all were summed", use.passes)
    yield CounterMetricFamily("lora_weights_damaged", "Times that some had changed", use.damaged)


def _notices(reading: BoardReading) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "lora_weight_notices", "Notices of weights that were damaged", reading.notices
    )
    yield CounterMetricFamily(
        "lora_requests_in_doubt",
        "Sequences that ended before damage was found, and may hold wrong tokens",
        reading.in_doubt,
    )


def _pages(kv: KvUse) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vllm:kv_cache_usage_perc", "Share of KV pages in use or reserved, 0 to 1",
        kv.held / kv.total,
    )  # fmt: skip
    config = {"block_size": str(PAGE_POSITIONS), "num_gpu_blocks": str(kv.total)}
    info = GaugeMetricFamily("vllm:cache_config_info", "KV pages, as labels", labels=list(config))
    info.add_metric(list(config.values()), 1)
    yield info
    yield GaugeMetricFamily("lora_kv_pages", "KV pages for sequences", kv.total)
    yield GaugeMetricFamily("lora_kv_pages_free", "KV pages that hold nothing", kv.free)
    yield GaugeMetricFamily(
        "lora_kv_pages_cached",
        "KV pages kept for later requests, until others need them",
        kv.cached,
    )
    yield CounterMetricFamily(
        "vllm:prefix_cache_queries", "Tokens looked up in the prefix cache", kv.looked_up
    )
    yield CounterMetricFamily(
        "vllm:prefix_cache_hits", "Tokens that the prefix cache held", kv.cached_tokens
    )
    yield CounterMetricFamily(
        "vllm:num_preemptions", "Sequences that gave their pages to older ones", kv.preempted
    )
    if kv.host is not None:
        yield from _host_pages(kv.host)


def _host_pages(host: HostUse) -> Iterator[Metric]:
    yield GaugeMetricFamily("lora_kv_host_pages", "KV pages that the host may keep", host.total)
    yield GaugeMetricFamily("lora_kv_host_pages_held", "KV pages that the host keeps", host.held)
    yield GaugeMetricFamily("lora_kv_host_bytes", "Bytes of these pages", host.bytes)
    yield CounterMetricFamily("lora_kv_host_kept", "KV pages stored by the host", host.kept)
    yield CounterMetricFamily(
        "lora_kv_host_found", "KV pages written back to the boards", host.found
    )
    yield CounterMetricFamily(
        "lora_kv_host_damaged", "KV pages of the host with a wrong checksum", host.damaged
    )


def _memory(reading: BoardReading) -> Iterator[Metric]:
    """Of boards whose runtime tells of ECC, by the banks that had errors."""
    labels = ["board", "bank"]
    corrected = CounterMetricFamily(
        "lora_memory_corrected", "Reads of words with one wrong bit, corrected by ECC",
        labels=labels,
    )  # fmt: skip
    uncorrected = CounterMetricFamily(
        "lora_memory_uncorrected", "Reads that failed: words with two wrong bits", labels=labels
    )
    for board, counts in enumerate(reading.memory):
        for bank, count in ({} if counts is None else counts.corrected).items():
            corrected.add_metric([str(board), str(bank)], count)
        for bank, count in ({} if counts is None else counts.uncorrected).items():
            uncorrected.add_metric([str(board), str(bank)], count)
    yield from (corrected, uncorrected)


def _links(reading: BoardReading) -> Iterator[Metric]:
    labels = ["board", "port"]
    up = GaugeMetricFamily("lora_link_up", "Whether the port's link is healthy", labels=labels)
    frames = CounterMetricFamily("lora_link_frames", "Frames received at the port", labels=labels)
    errors = CounterMetricFamily(
        "lora_link_errors", "Frames received with errors at the port", labels=labels
    )
    for link in reading.links:
        where = [str(link.board), str(link.port)]
        up.add_metric(where, link.up)
        frames.add_metric(where, link.frames)
        errors.add_metric(where, link.errors)
    yield from (up, frames, errors)
