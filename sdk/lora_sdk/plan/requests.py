"""Memory requests per decoded token, before and after merging (GLITCHES, section IV.C).

With a prefetch ratio of M, one request reads the weights of M block matmuls. FlightLLM's 4-bit
weights need a second request for scales and zero points; our 4-bit block stores them after
its values, so one request reads both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lora_host.overlay import COLUMN

if TYPE_CHECKING:
    from lora_sdk.plan.banks import MatrixPlacement
    from lora_sdk.plan.model_plan import Plan

RATIOS = (1, 2, 4, 8)
CELL = 15  # least columns of a cell: four ratios beside the names fit 80 columns


@dataclass(frozen=True)
class Stream:
    """Blocks of one kind of matrix that a board reads per token; sizes in bytes of one block.
    `metadata`: bytes of scales and zero points in a block, 0 if it has none."""

    name: str
    matrices: int
    blocks: tuple[int, ...]
    block_bytes: int
    metadata: int

    def count(self, ratio: int) -> int:
        """Requests of `ratio` blocks; a matrix's last one may be short."""
        return sum(-(-blocks // ratio) for blocks in self.blocks)


def streams(placements: dict[str, MatrixPlacement]) -> list[Stream]:
    """One board's matrices by kind, without the prefix `layer.I.`, in the order of a step."""
    kinds: dict[tuple[str, int, int], list[int]] = {}
    for name, placed in placements.items():
        if not placed.spec.streamed:
            continue
        form = placed.spec.format
        key = (name.rpartition(".")[2], form.block_bytes, form.metadata_bytes)
        kinds.setdefault(key, []).extend([placed.spec.blocks] * (placed.spec.chosen or 1))
    return [
        Stream(kind, len(blocks), tuple(blocks), size, metadata)
        for (kind, size, metadata), blocks in kinds.items()
    ]


def requests_report(plan: Plan) -> dict[str, Any]:
    """Requests per decoded token on the first board: for each kind of matrix and ratio M, how many
    and of how many bytes, and what two requests (weights, metadata) would be instead."""
    found = streams(plan.boards[0].matrices)
    return {
        "merge": plan.overlay.merge,
        "board": plan.boards[0].board,
        "matrices": [_stream(stream, ratios(plan.overlay.merge)) for stream in found],
        "total": [_total(found, ratio) for ratio in ratios(plan.overlay.merge)],
    }


def ratios(merge: int | str) -> tuple[int, ...]:
    """The ratios that are shown, the overlay's own among them where it is a number."""
    return tuple(sorted({*RATIOS, merge} if isinstance(merge, int) else RATIOS))


def _stream(stream: Stream, shown: tuple[int, ...]) -> dict[str, Any]:
    return {
        "matrix": stream.name,
        "matrices": stream.matrices,
        "block_bytes": stream.block_bytes,
        "metadata_bytes": stream.metadata,
        "ratios": [_at(stream, ratio) for ratio in shown],
    }


def _at(stream: Stream, ratio: int) -> dict[str, int]:
    count = stream.count(ratio)
    return {
        "ratio": ratio,
        "requests": count,
        "request_bytes": ratio * stream.block_bytes,
        "requests_if_metadata_apart": 2 * count if stream.metadata else count,
    }


def _total(found: list[Stream], ratio: int) -> dict[str, int]:
    at = [_at(stream, ratio) for stream in found]
    counts = ("requests", "requests_if_metadata_apart")
    return {"ratio": ratio, **{name: sum(one[name] for one in at) for name in counts}}


def request_lines(found: dict[str, Any]) -> Iterator[str]:
    """The same as text."""
    merge = found["merge"]
    merged = "a column tile" if merge == COLUMN else f"{merge} block{'s' if merge > 1 else ''}"
    yield (
        f"memory requests per decoded token, board {found['board']}; the overlay merges "
        f"{merged} per request; requests x bytes of each"
    )
    shown = [one["ratio"] for one in found["total"]]
    rows = [
        (stream, [f"{one['requests']} x {one['request_bytes']}" for one in stream["ratios"]])
        for stream in found["matrices"]
    ]
    wide = max(CELL, 2 + max((len(cell) for _, cells in rows for cell in cells), default=0))

    def line(cells: Iterable[object]) -> str:
        return "".join(f"{cell!s:>{wide}}" for cell in cells)

    yield f"{'matrix':<10}{'block B':>8}" + line(f"M = {ratio}" for ratio in shown)
    for stream, cells in rows:
        yield f"{stream['matrix']:<10}{stream['block_bytes']:>8}" + line(cells)
    yield f"{'all':<18}" + line(one["requests"] for one in found["total"])
    if any(stream["metadata_bytes"] for stream in found["matrices"]):
        apart = line(one["requests_if_metadata_apart"] for one in found["total"])
        yield f"{'metadata apart':<18}{apart}"
