"""Timing of command lists: every model and board count, what it depends on and what it does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lora_host.boards import load_board
from lora_host.errors import RequestError
from lora_host.overlay import load_overlay
from lora_lab.timing import step as steps
from lora_lab.timing.list_ops import ListTiming, position_lines
from lora_lab.timing.machine import machine_of_overlay
from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.report import Totals
from lora_lab.timing.schedule import schedule
from lora_lab.timing.shape_ops import step_ops
from lora_lab.timing.target import OverlayTarget, Target, make_target, totals_of
from lora_sdk.compile.isa import Fence
from lora_sdk.compile.lower import lower
from lora_sdk.model.block import describe
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.shapes import shape_config
from lora_sdk.model.spec import with_kv_cache
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.kv import KvLayout
from lora_sdk.plan.placement import make_plan
from tests.unit.plan_rig import GPT2, LLAMA, MODELS, board, overlay, quantized


def timing(config=GPT2, boards=4, adapters=None, **changes) -> OverlayTiming:
    chosen = overlay(**changes)
    return OverlayTiming(
        config, make_plan(config, chosen, chosen.board, boards, context=128, adapters=adapters)
    )


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [steps.decode(40), steps.prefill(33), steps.verify(5, 70)])
def test_every_list_is_timed_and_accounted_for(name: str, boards: int, shape) -> None:
    found = timing(MODELS[name], boards).step(shape)
    timeline = found.timeline
    assert timeline.cycles > 0
    assert sum(timeline.by.values()) == pytest.approx(timeline.cycles, rel=1e-9)
    assert (timeline.by["link_exposed"] > 0) == (boards > 1)
    for op in found.ops:
        _, count, fullest = op.banks
        assert count * fullest >= op.bytes or op.category not in ("weights", "attention")


def test_the_same_step_takes_the_same_time_twice_and_by_given_lists() -> None:
    chosen = overlay()
    plan = make_plan(LLAMA, chosen, chosen.board, 4, context=64)
    lists = {rank: lower(LLAMA, plan, rank) for rank in range(4)}
    shape = steps.decode(33)
    assert (
        OverlayTiming(LLAMA, plan).step(shape).timeline
        == OverlayTiming(LLAMA, plan, lists).step(shape).timeline
    )


def test_tiles_outside_a_window_are_not_charged() -> None:
    """A row sees 40 of 128 positions: at most 3 tiles, in the layers that have the window."""
    plain = timing(LLAMA, 1)
    some = timing(replace(LLAMA, windows=(40, *[0] * (LLAMA.layers - 1))), 1)
    ops = [
        [op for op in found.step(steps.decode(128)).ops if op.category == "attention"]
        for found in (plain, some)
    ]
    read = [[op.bytes for op in found if op.bytes] for found in ops]
    assert len(read[0]) == LLAMA.layers and read[1][1:] == read[0][1:]
    assert read[1][0] == read[0][0] * 3 / 4
    macs = [found[0].macs for found in ops]
    assert macs[1] == macs[0] * 40 / 128


def test_a_slower_link_fewer_lanes_and_a_smaller_array_take_longer() -> None:
    whole = load_overlay("lora_f_u280")
    config = replace(shape_config("gpt2-345m"), layers=2)
    shape = steps.decode(64)
    base = timing(config).step(shape).timeline.cycles
    slow = replace(whole.links, latency_ns=900)
    narrow = replace(whole.tiling, vector_lanes=2)
    small = replace(whole.tiling, array_columns=16)
    assert timing(config, links=slow).step(shape).timeline.cycles > base
    assert timing(config, tiling=narrow).step(shape).timeline.cycles > base
    assert timing(config, tiling=small).step(shape).timeline.cycles > base


def units(target: Target, shape: steps.StepShape) -> Totals:
    """The units' time of an overlay's step, without what every step takes besides."""
    assert isinstance(target, OverlayTarget)
    found = target.timing.step(shape)
    return totals_of(found.ops, found.timeline, target.timing.machine.clock_hz)


def test_lists_and_shapes_agree_on_what_dominates() -> None:
    """The design lora-f and the overlay of that name differ by what the list spells out (its norm
    exchange, a start a command, lm_head); on one board the products agree closely."""
    config = shape_config("gpt2-345m")
    by_list = units(make_target("lora_f_u280", None, config, 1), steps.decode(64))
    by_shape = make_target("lora-f", None, config, 1).decode(64)
    head = config.hidden * config.vocabulary / 1024 * (32 + 10.2) / 32 / 200e6
    assert by_list.by["weights"] - head == pytest.approx(by_shape.by["weights"], rel=0.02)
    assert by_list.seconds - head == pytest.approx(by_shape.seconds, rel=0.35)


def test_post_layernorm_is_timed_as_its_list_says() -> None:
    """Its norms' exchanges stand between the sum and the next gather: nothing local hides them."""
    post = timing(MODELS["opt_post"], 4).step(steps.decode(16)).timeline
    pre = timing(replace(MODELS["opt_post"], norm_first=True), 4).step(steps.decode(16)).timeline
    assert post.by["link_exposed"] >= pre.by["link_exposed"] * 0.95


def test_rows_with_adapters_cost_more_and_empty_slots_nothing() -> None:
    plain = timing(LLAMA, 1).step(steps.decode(20)).timeline.cycles
    slots = timing(LLAMA, 1, AdapterOptions(slots=2, max_rank=8))
    assert slots.step(steps.decode(20)).timeline.cycles == plain
    adapted = replace(steps.decode(20), adapted=1, adapters=1)
    assert slots.step(adapted).timeline.cycles > plain
    wide = timing(LLAMA, 1, AdapterOptions(slots=2, max_rank=64))
    assert wide.step(adapted).timeline.cycles > slots.step(adapted).timeline.cycles


def test_slots_give_up_the_overlap_of_the_gather_before_a_product() -> None:
    """ADAPTER stands before the product on the same unit and waits for every segment."""
    plain = timing(LLAMA, 2).step(steps.decode(20)).timeline
    slots = timing(LLAMA, 2, AdapterOptions(slots=2, max_rank=8)).step(steps.decode(20)).timeline
    assert slots.by["link_exposed"] > plain.by["link_exposed"]
    assert slots.by["weights"] == pytest.approx(plain.by["weights"])


def test_the_shapes_of_engine_rows() -> None:
    assert steps.of_rows([(0, 0, -1), (0, 1, -1), (0, 2, -1)], [2]) == steps.prefill(3)
    assert steps.of_rows([(0, 39, -1)], [0], 1) == steps.decode(40)
    both = steps.of_rows([(0, 9, 1), (1, 4, 1), (2, 0, -1)], range(3))
    assert (both.visible, both.kv_positions) == (10 + 5 + 1, 10 + 5 + 1)
    assert (both.adapted, both.adapters) == (2, 1)


def test_the_last_layer_is_charged_its_sampled_rows() -> None:
    """A row at 2001 positions beside a prompt, which wants no logits yet."""
    rows = [(0, 2000, -1), *((1, position, -1) for position in range(30))]
    some = steps.sampled_rows(steps.of_rows(rows, [0]))
    assert (some.rows, some.visible, some.kv_positions) == (1, 2001, 2031)
    near = steps.sampled_rows(steps.windowed(steps.of_rows(rows, [0, 30]), 16))
    assert (near.rows, near.visible) == (2, 32)
    last = steps.sampled_rows(steps.prefill(64, 100))
    assert (last.rows, last.visible, last.kv_positions) == (1, 164, 164)
    none = steps.sampled_rows(steps.prefill(64, last=False))
    assert (none.rows, none.visible, none.kv_positions) == (0, 0, 0)
    every = steps.verify(8, 40)
    assert steps.sampled_rows(every) is every

    timed = timing(LLAMA, 2)
    prompt, middle, whole = (
        timed.step(shape).timeline.cycles
        for shape in (
            steps.prefill(64),
            steps.prefill(64, last=False),
            replace(steps.prefill(64), sampled=64, sampled_visible=None),
        )
    )
    assert middle < prompt < 0.8 * whole


def test_prompts_are_cut_as_the_engine_cuts_them() -> None:
    cut = steps.prefill_steps(70, 32)
    assert [shape.rows for shape in cut] == [32, 32, 6]
    assert [shape.sampled for shape in cut] == [0, 0, 1]
    assert [shape.committed for shape in cut] == [0, 32, 32]
    assert sum(shape.visible for shape in cut) == steps.prefill(70).visible


def test_a_command_without_timing_is_named() -> None:
    class Strange(Fence):
        pass

    chosen = overlay()
    plan = make_plan(LLAMA, chosen, load_board("u280"), 1, context=64)
    lists = [*lower(LLAMA, plan, 0), Strange(what="something new")]
    made = ListTiming(machine_of_overlay(chosen), plan, 0, lists)
    with pytest.raises(RequestError, match=r"'something new' .* has no timing"):
        schedule(made.ops(steps.decode(3)))


def test_a_position_of_the_cache_touches_a_line_an_element_of_k() -> None:
    assert position_lines(kv_layout("fp16")) == 128 + 4
    assert position_lines(kv_layout("int8")) == 64 + 2
    assert position_lines(kv_layout("int8-heads")) == 65 + 2 + 1


def kv_layout(kind: KvKind) -> KvLayout:
    return KvLayout(0, 32, 0, 4, 4, 128, 8, 4, kind)


def test_fewer_bytes_take_less_time() -> None:
    """The same shape in FP16, W8A8 and W4A8, each on its overlay; and FP16 weights on an integer
    array."""
    config = shape_config("gpt2-345m")
    found = {
        name: units(make_target(f"{name}_u280", None, config, 1), steps.decode(64))
        for name in ("lora_f", "lora_q", "lora_w4a8")
    }
    f, q, w4 = (found[name] for name in ("lora_f", "lora_q", "lora_w4a8"))
    assert f.seconds > 1.4 * q.seconds > 1.6 * w4.seconds
    assert q.bytes["weights"] == pytest.approx(f.bytes["weights"] / 2, rel=0.01)
    assert q.bytes["kv"] == f.bytes["kv"] / 2
    # lm_head keeps 8 bits; scales and zero points are read with the values
    assert w4.bytes["weights"] < 0.65 * q.bytes["weights"]
    chosen = load_overlay("lora_q_u280")
    half = OverlayTiming(config, make_plan(config, chosen, chosen.board, 1, context=64))
    whole = OverlayTiming(config, make_plan(config, overlay(), board(), 1, context=64))
    shape = steps.prefill(64)
    ops = [next(op for op in t.step(shape).ops if op.what == "matrix up") for t in (half, whole)]
    assert ops[0].compute == pytest.approx(ops[1].compute, rel=0.1)  # 4 times the multipliers


@pytest.mark.parametrize("boards", [1, 4])
def test_dynamic_scales_cost_a_pass_and_on_several_boards_an_exchange(boards: int) -> None:
    """On each gathered input: in lists and in shapes."""
    gathered = [m for m in describe(LLAMA).matmuls if m.gather]
    parts = {}
    for scheme in ("w8a8", "w8a8_dynamic"):
        config = quantized(LLAMA, scheme)
        config = with_kv_cache(config, "fp16")
        chosen = load_overlay("lora_q_u280")
        plan = make_plan(config, chosen, chosen.board, boards, context=128)
        step = OverlayTiming(config, plan).step(steps.decode(40))
        shape = step_ops(machine_of_overlay(chosen), config, boards, steps.decode(40))
        parts[scheme] = Counter(op.what for op in step.ops), Counter(op.what for op in shape), step
    for found, plain in zip(parts["w8a8_dynamic"][:2], parts["w8a8"][:2], strict=True):
        maxima = [what for what in (found - plain).elements() if "max" in what]
        assert len(maxima) == len(gathered) * (1 if boards == 1 else 2)
        assert (found - plain).total() == len(maxima)
    cycles = [parts[scheme][2].timeline for scheme in ("w8a8", "w8a8_dynamic")]
    assert cycles[1].cycles > cycles[0].cycles
    assert (cycles[1].by["link_exposed"] > cycles[0].by["link_exposed"]) == (boards > 1)
