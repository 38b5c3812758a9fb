"""Traces open in Perfetto: the format's rules, and what is said of what was dropped."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from lora_lab.timing.step import decode
from lora_lab.timing.target import make_target
from lora_lab.timing.trace import THREADS, trace_events, trace_target, write_steps, write_trace
from lora_sdk.model.shapes import shape_config


@pytest.fixture(scope="module", params=["lora-f", "lora_f_u280"])
def boards(request: pytest.FixtureRequest):
    return trace_target(make_target(request.param, None, shape_config("gpt2-345m"), 4), decode(64))


def test_events_are_valid_and_do_not_overlap_on_a_thread(boards, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert write_trace(path, boards) == 0
    content = json.loads(path.read_text())
    assert content["otherData"]["events_dropped"] == 0
    threads = defaultdict(list)
    flows = defaultdict(list)
    for event in content["traceEvents"]:
        assert event["ph"] in "MXsf" and 0 <= event["pid"] < 4
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and 0 <= event["tid"] < len(THREADS)
            threads[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
        if event["ph"] in "sf":
            flows[event["id"], event["name"]].append(event)
    for spans in threads.values():
        spans.sort()
        for (begin, length), (following, _) in pairwise(spans):
            assert begin + length <= following + 1e-6
    assert flows
    for start, end in flows.values():
        assert (start["ph"], end["ph"]) == ("s", "f")
        assert start["ts"] <= end["ts"] and start["pid"] != end["pid"]
    named = {event["pid"] for event in content["traceEvents"] if event["name"] == "process_name"}
    assert named == {0, 1, 2, 3}


def test_later_steps_are_counted_once_the_limit_is_reached(boards, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    one = len(trace_events(boards)[0])
    dropped = write_steps(path, [boards, boards], later=7, limit=one)
    content = json.loads(path.read_text())
    assert len(content["traceEvents"]) == one and dropped > 0
    assert content["otherData"]["events_dropped"] == dropped
    assert content["otherData"]["steps_dropped"] == 7


def test_the_trace_ends_when_the_step_does(boards) -> None:
    events, _ = trace_events(boards)
    ends = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    slowest = max(trace.timeline.cycles / trace.clock_hz for trace in boards)
    assert ends == pytest.approx(slowest * 1e6)


def test_a_capped_trace_says_what_it_dropped(boards, tmp_path: Path) -> None:
    every, none = trace_events(boards)
    few, dropped = trace_events(boards, 200)
    assert none == 0 and len(few) <= 200
    assert len(few) + dropped == len(every)
    starts = sum(event["ph"] == "s" for event in few)
    assert starts == sum(event["ph"] == "f" for event in few)
    path = tmp_path / "trace.json"
    assert write_trace(path, boards, 200) == dropped
    assert json.loads(path.read_text())["otherData"]["events_dropped"] == dropped
