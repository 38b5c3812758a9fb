"""Steps as a Chrome/Perfetto trace: one process per board, one thread per unit and link."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_host.errors import RequestError
from lora_lab.timing.ops import DMA, MPU, ROUTER, VFU, Op
from lora_lab.timing.schedule import Timeline
from lora_lab.timing.step import StepShape
from lora_lab.timing.target import ArrayTarget, OverlayTarget, Target

if TYPE_CHECKING:
    from lora_lab.timing.overlay_time import OverlayTiming

MAX_EVENTS = 200_000
THREADS = (MPU, VFU, ROUTER, DMA, "control", "link")
MICROSECONDS = 1e6


@dataclass(frozen=True)
class BoardTrace:
    """A board's operators and their spans, in cycles of `clock_hz`, from `offset` cycles on."""

    board: int
    clock_hz: float
    ops: Sequence[Op]
    timeline: Timeline
    offset: float = 0.0


def trace_target(target: Target, shape: StepShape) -> list[BoardTrace]:
    """Every board of a target in one step. Boards of a design all have the largest share, those of
    an overlay their own share. RequestError: a stream design has no operators."""
    if isinstance(target, ArrayTarget):
        ops = target.ops(shape)
        timeline = target.timeline(ops, shape, keep=True)
        clock = target.machine.clock_hz
        return [BoardTrace(board, clock, ops, timeline) for board in range(target.boards)]
    if isinstance(target, OverlayTarget):
        return trace_overlay(target.timing, shape)
    raise RequestError(f"design {target.name} has no operators to trace; use an array design")


def trace_overlay(timing: OverlayTiming, shape: StepShape, offset: float = 0.0) -> list[BoardTrace]:
    """Every board of an overlay in one step that begins at `offset` cycles."""
    clock = timing.machine.clock_hz
    return [
        BoardTrace(plan.board, clock, *timing.board_step(plan.rank, shape), offset)
        for plan in timing.plan.boards
    ]


def trace_events(
    boards: Sequence[BoardTrace], limit: int = MAX_EVENTS, step: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """(events, number dropped): names, complete events in time order per board, and flows from each
    transfer on a link to the next board's. `step` distinguishes the flows of several steps. Names
    come with the first step."""
    events = [] if step else [entry for trace in boards for entry in _names(trace.board)]
    room = max(0, limit - len(events))
    slices = [entry for trace in boards for entry in _slices(trace)]
    flows = list(_flows(boards, step))
    slices.sort(key=lambda entry: (entry["ts"], entry["pid"], entry["tid"]))
    kept = slices[:room]
    # A flow is kept or dropped as a whole: a start without an end draws an arrow to nowhere.
    last = kept[-1]["ts"] if len(kept) < len(slices) and kept else float("inf")
    spare = (room - len(kept)) // 2
    pairs = [pair for pair in flows if pair[1]["ts"] <= last][:spare]
    dropped = len(slices) - len(kept) + 2 * (len(flows) - len(pairs))
    events += kept + [entry for pair in pairs for entry in pair]
    return events, dropped


def write_trace(path: Path, boards: Sequence[BoardTrace], limit: int = MAX_EVENTS) -> int:
    """Write a trace file. Returns the number of dropped events, which is also in the file.

    RequestError: the file cannot be written."""
    events, dropped = trace_events(boards, limit)
    _write(path, events, dropped, len(boards), limit)
    return dropped


def write_steps(
    path: Path, steps: Iterable[Sequence[BoardTrace]], later: int = 0, limit: int = MAX_EVENTS
) -> int:
    """Write steps in sequence. Returns the number of dropped events, which is also in the file, as
    is the number of `later` steps that it omits. RequestError: the file cannot be written."""
    events: list[dict[str, Any]] = []
    dropped = boards = 0
    for number, step in enumerate(steps):
        found, lost = trace_events(step, limit - len(events), number)
        events += found
        dropped += lost
        boards = len(step)
    _write(path, events, dropped, boards, limit, later)
    return dropped


def _write(
    path: Path,
    events: list[dict[str, Any]],
    dropped: int,
    boards: int,
    limit: int,
    later: int = 0,
) -> None:
    content = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "label": "modelled",
            "boards": boards,
            "events_dropped": dropped,
            "event_limit": limit,
            "steps_dropped": later,
        },
    }
    try:
        path.write_text(json.dumps(content), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: trace cannot be written: {error.strerror}") from None


def _names(board: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": board, "tid": 0,
           "args": {"name": f"board {board} (modelled)"}}  # fmt: skip
    for tid, name in enumerate(THREADS):
        yield {"ph": "M", "name": "thread_name", "pid": board, "tid": tid, "args": {"name": name}}


def _slices(trace: BoardTrace) -> Iterator[dict[str, Any]]:
    """One complete event per operator. A gather's transfer is also on the link's thread."""
    for span in trace.timeline.spans:
        op = trace.ops[span.index]
        event = {
            "ph": "X",
            "name": op.what,
            "cat": op.category,
            "pid": trace.board,
            "tid": THREADS.index(op.unit),
            "ts": _time(trace, trace.offset + span.begin),
            "dur": _time(trace, span.end - span.begin),
            "args": {"layer": op.layer, "bytes": round(op.bytes), "macs": round(op.macs)},
        }
        yield event
        if op.unit == ROUTER and op.link_bytes:
            args = {"bytes": round(op.link_bytes)}
            yield {**event, "tid": THREADS.index("link"), "name": f"send {op.what}", "args": args}


def _flows(
    boards: Sequence[BoardTrace], step: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """From a board's transfer to its end on the neighbor."""
    link = THREADS.index("link")
    for index, trace in enumerate(boards[:-1]):
        neighbor = boards[index + 1]
        for span in trace.timeline.spans:
            op = trace.ops[span.index]
            if op.unit != ROUTER or not op.link_bytes or span.index >= len(neighbor.timeline.spans):
                continue
            other = neighbor.timeline.spans[span.index]
            common = {"cat": "transfer", "name": op.what,
                      "id": f"{step}.{index}.{span.index}"}  # fmt: skip
            start = _time(trace, trace.offset + span.begin)
            yield (
                {**common, "ph": "s", "pid": trace.board, "tid": link, "ts": start},
                {**common, "ph": "f", "bp": "e", "pid": neighbor.board, "tid": link,
                 "ts": max(start, _time(neighbor, neighbor.offset + other.end))},
            )  # fmt: skip


def _time(trace: BoardTrace, cycles: float) -> float:
    return cycles / trace.clock_hz * MICROSECONDS
