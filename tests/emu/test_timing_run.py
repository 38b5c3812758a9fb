"""Modelled time of emulated runs: what `lora lab model` says of the same steps and overlay."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_lab.timing import step as steps
from lora_lab.timing.model import token_time
from lora_lab.timing.run import RunTime, time_engine
from lora_lab.timing.target import OverlayTarget
from lora_sdk import Engine, SamplingParams
from lora_sdk.model.config import load_config
from lora_sdk.model.demo import demo_model_path
from lora_sdk.step.verify import Tree

PROMPT = [5, 9, 2, 40, 17, 3, 8]
GREEDY = SamplingParams(max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module", params=[1, 2, 4])
def run(request: pytest.FixtureRequest) -> tuple[RunTime, OverlayTarget]:
    with Engine(boards=request.param, context=128) as engine:
        time = time_engine(engine)
        engine.generate(PROMPT, GREEDY)
        engine.generate(PROMPT, replace(GREEDY, temperature=0.8, seed=3))  # not the boards' loop
        sequence = engine.open_sequence()
        engine.prefill(sequence, PROMPT)
        engine.verify(sequence, Tree((4, 5, 6), (-1, 0, 0)))
    config = load_config(demo_model_path())
    return time, OverlayTarget("lora_f_u280", config, request.param, context=128)


def test_every_step_takes_exactly_what_lora_model_says(run) -> None:
    time, target = run
    assert sum(time.steps.values()) >= 13
    for shape in time.steps:
        assert time.seconds(shape) == time.timing.machine.seconds(
            target.timing.whole(shape, False).cycles
        )
        assert time.timing.step(shape).timeline.by == target.timing.step(shape).timeline.by


def test_the_engine_counts_what_ran(run) -> None:
    time, _ = run
    prompt = steps.prefill(len(PROMPT))
    assert time.steps[prompt] >= 1
    # Both loops, the boards' own and Python's, decode at 10 and commit the row before.
    assert time.steps[steps.decode(10)] == 2
    lengths = {shape.kv_positions for shape in time.steps if shape == steps.decode(shape.visible)}
    assert len(lengths) >= 4  # each decoded token sees one position more
    assert any(shape.rows == 3 and shape.sampled == 3 for shape in time.steps)


def test_a_decoded_token_takes_what_lora_model_answers(run) -> None:
    time, target = run
    context = next(s.visible for s in time.steps if s == steps.decode(s.visible))
    report = token_time(target, "demo", context)
    sums = 1e-3 * report.breakdown_ms["scrub"]  # those of a run are counted by themselves
    assert report.latency_ms == pytest.approx(1e3 * (time.seconds(steps.decode(context)) + sums))


def test_time_does_not_depend_on_values() -> None:
    """Other tokens of the same number take the same time."""
    sums = []
    for seed in (1, 2):
        tokens = [int(t) for t in np.random.default_rng(seed).integers(10, 200, 9)]
        with Engine(boards=2, context=64) as engine:
            time = time_engine(engine)
            engine.generate(tokens, GREEDY)
            sums.append((time.totals(True).seconds, time.totals(False).seconds))
    assert sums[0] == sums[1]
    assert min(sums[0]) > 0


def test_the_trace_of_a_run_has_its_steps_one_after_another(run, tmp_path: Path) -> None:
    time, target = run
    path = tmp_path / "run.json"
    assert time.write_trace(path) == 0
    content = json.loads(path.read_text())
    assert content["otherData"] | {"steps_dropped": 0} == content["otherData"]
    spans = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == set(range(target.boards))
    ends = max(event["ts"] + event["dur"] for event in spans)
    units = sum(time.timing.step(s).timeline.cycles * n for s, n in time.steps.items())
    assert ends == pytest.approx(time.timing.machine.seconds(units) * 1e6)
    flows = [event["id"] for event in content["traceEvents"] if event["ph"] == "s"]
    assert len(flows) == len(set(flows))


def test_statistics_say_all_that_a_run_takes_first(run) -> None:
    time, _ = run
    source, first, second = time.lines()[:3]
    assert source.startswith("modelled: this project's hardware source on")
    whole = {}
    for line in (source, first):
        found = re.search(r": ([\d.]+) ms in all, prefill .* ms per step after it", line)
        assert found is not None, line
        whole[line] = float(found[1])
    steps_of_it = sum(time.seconds(shape) * count for shape, count in time.steps.items())
    assert "with ideal units, not built: " in first
    assert whole[first] == pytest.approx(1e3 * (steps_of_it + time.sum_seconds), abs=6e-4)
    assert second.startswith(f"modelled: of these {whole[first]:.3f} ms: dispatch ")


def test_sums_of_weights_are_counted_and_charged() -> None:
    with Engine(boards=2) as engine:
        assert engine._watch is not None
        scrubber, time = engine._watch.scrubber, time_engine(engine)
        assert not scrubber.prove() and not scrubber.use.operations  # since loading no row ran
        while not scrubber.use.passes:
            assert not scrubber.advance_for(60)
        use = engine.scrubbed
        assert use is not None and 0 <= 2 * time.sums - use.operations <= 2 * use.regions
        assert use.bytes / 2 <= time.summed < use.bytes  # by the busiest board
        assert time.sum_seconds == pytest.approx(use.modelled_seconds, rel=1e-3)
        assert f"{time.sums} sums of weights" in time.lines()[-1]
        least = time.summed / 64 / time.timing.machine.clock_hz
        assert least < time.sum_seconds < 2 * least + 8e-5 * time.sums
