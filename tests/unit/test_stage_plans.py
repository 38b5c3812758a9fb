"""Stages of layers: what each board holds and runs, the gathers between boards, refusals, time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_host import abi
from lora_host.errors import PlacementError, RequestError
from lora_lab.cli.model import model as model_command
from lora_lab.timing import step as steps
from lora_lab.timing.cluster import Hosts, Load, Split, best, cluster_report, cost, outdone, splits
from lora_lab.timing.command_count import command_count
from lora_lab.timing.control import VOTES
from lora_lab.timing.layout import Layout
from lora_lab.timing.machine import machine_of_overlay
from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.prices import prices
from lora_lab.timing.shape_ops import step_ops
from lora_lab.timing.target import ArrayTarget, make_target
from lora_sdk.cli.plan import plan as plan_command
from lora_sdk.compile.isa import Gather
from lora_sdk.compile.lower import lower
from lora_sdk.model.block import describe
from lora_sdk.model.shapes import SHAPES, find_config
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.stage import describe_stage
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.partition import Partition
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.report import report, table
from tests.unit.plan_rig import GPT2, LLAMA, MODELS, board, overlay

LAYERS = {name: replace(config, layers=5) for name, config in MODELS.items()}
CASES = [(2, 2), (4, 2), (4, 4), (8, 2), (32, 4)]


def made(config: ModelConfig, boards: int, stages: int, **more: object) -> Plan:
    return make_plan(config, overlay(), board(), boards, stages=stages, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("boards", "stages"), CASES)
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_lies_on_the_boards_of_one_stage(name: str, boards: int, stages: int) -> None:
    """And what comes before and after the layers, on the first and the last."""
    config = LAYERS[name]
    plan = made(config, boards, stages)
    assert [layer for stage in plan.stages for layer in stage.layers] == list(range(5))
    for planned in plan.boards:
        stage = planned.share.stage
        held = {matrix.spec.layer for matrix in planned.matrices.values()} - {None}
        assert held <= set(stage.layers) and planned.kv.layers == len(stage.layers)
        assert planned.rank == stage.index * plan.stage_boards + planned.share.rank
        assert ("lm_head" in planned.matrices) <= stage.is_last
        assert bool(planned.share.vocabulary) <= stage.is_last
        assert not any(t.startswith("embed.") for t in planned.tables) or stage.is_first
    one = made(config, 1, 1)
    replicas = sum(r.bytes for p in plan.boards for r in p.replicas if r.what == "k and v")
    weights = sum(m.spec.bytes for p in plan.boards for m in p.matrices.values())
    assert weights == sum(m.spec.bytes for m in one.boards[0].matrices.values()) + replicas


def test_operations_of_stages_are_those_of_the_model_in_order() -> None:
    config = LAYERS["opt_post"]
    parts = [describe_stage(config, stage.layers) for stage in Partition(config, 4, 4).stages]
    joined = [one for part in parts for one in part.operations]
    whole = list(describe_stage(config, range(5)).operations)
    assert [one for one in joined if one is not whole[-1]] == whole[:-1]
    assert joined.count(whole[-1]) == 4  # ARGMAX, which every board runs
    assert describe_stage(config, range(5), all_rows=True) is describe(config)


@pytest.mark.parametrize(("boards", "stages"), CASES)
def test_gathers_of_all_boards_agree(boards: int, stages: int) -> None:
    """Each is in the lists of its boards alone, in ascending order, from the right side."""
    plan = made(LAYERS["llama"], boards, stages)
    seen: dict[int, dict[int, int]] = {}
    for rank in range(boards):
        found = [c for c in lower(plan.config, plan, rank) if isinstance(c, Gather)]
        numbers = [gather.collective for gather in found]
        assert numbers == sorted(set(numbers)) and numbers[-1] == len(plan.collectives)
        assert [g.span for g in found].count(abi.SPAN_ALL) == 1  # the votes
        for gather in found[:-1]:
            seen.setdefault(gather.collective, {})[rank] = gather.span
    for number, collective in enumerate(plan.collectives):
        span = collective.span
        assert span is not None
        assert sorted(seen[number]) == list(range(span.first, span.first + span.boards))
        owners = range(span.first, span.first + span.owners)
        for rank, kind in seen[number].items():
            inner = abi.SPAN_TO_NEXT if rank in owners else abi.SPAN_FROM_PREVIOUS
            assert kind == (abi.SPAN_STAGE if span.owners == span.boards else inner)


def test_one_stage_has_the_lists_that_it_had() -> None:
    plan, plain = made(LLAMA, 4, 1), make_plan(LLAMA, overlay(), board(), 4)
    assert plan == plain and plan.stages[0].layers == range(3)
    assert all(c.span == abi.SPAN_ALL for c in lower(LLAMA, plan, 2) if isinstance(c, Gather))


@pytest.mark.parametrize(
    ("boards", "stages", "message"),
    [
        (8, 3, "3 stages of 8 boards were requested; expected 1, 2, 4 or 8"),
        (2, 4, "4 stages of 2 boards were requested; expected 1 or 2"),
        (8, 0, "0 stages of 8 boards were requested"),
        (8, 8, "8 stages were requested, but the model has 5 layers .* use at most 4"),
        (16, 1, "16 boards were requested, .* 9 query heads .* use at most 8, or 2 stages"),
        (64, 4, "64 boards in 4 stages were requested, .* use at most 32"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_works(
    boards: int, stages: int, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        Partition(LAYERS["llama"], boards, stages)


def test_the_numbers_that_messages_name_work() -> None:
    for boards, stages in ((8, 1), (16, 2), (32, 4)):
        assert len(Partition(LAYERS["llama"], boards, stages).shares()) == boards


def test_a_model_too_large_is_told_of_boards_and_stages() -> None:
    deep = replace(LLAMA, layers=64, heads=9, hidden=4608, embed_dim=4608, head_dim=512)
    small = board(hbm=8 << 20, ddr=8 << 20)
    with pytest.raises(PlacementError, match=r"; \d+ boards in \d+ stages would fit") as error:
        make_plan(deep, overlay(), small, 8)
    words = str(error.value).rpartition("; ")[2].split()
    assert make_plan(deep, overlay(), small, int(words[0]), stages=int(words[3])).size > 8


def test_adapters_are_numbered_within_a_stage() -> None:
    plan = made(LAYERS["llama"], 4, 2, adapters=AdapterOptions(2, 16))
    sizes = [planned.adapters.matrices for planned in plan.boards if planned.adapters]
    assert sizes == [2 * 4, 2 * 4, 3 * 4, 3 * 4]


def test_the_report_names_stages_and_hops() -> None:
    plan = made(replace(LLAMA, layers=8), 16, 4)
    found = report(plan)
    assert [stage["layers"] for stage in found["stages"]] == [[0, 2], [2, 4], [4, 6], [6, 8]]
    assert found["stages"][1]["boards"] == [4, 5, 6, 7]
    assert found["hops"] == 8  # half the ring: more than 2*4 - 1
    text = table(found)
    assert "4 stages of 4 boards, by rank, with layers 0-1, 2-3, 4-5, 6-7" in text
    assert report(made(replace(LLAMA, layers=8), 16, 2))["hops"] == 15


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("boards", "stages"), CASES)
@pytest.mark.parametrize("shape", [steps.decode(40), steps.prefill(33)])
def test_a_step_of_stages_is_accounted_for(boards: int, stages: int, shape) -> None:
    timing = OverlayTiming(LAYERS["llama"], made(LAYERS["llama"], boards, stages))
    found = timing.step(shape)
    assert sum(found.timeline.by.values()) == pytest.approx(found.timeline.cycles, rel=1e-9)
    assert len(found.arrivals) == stages
    assert list(found.arrivals) == sorted(set(found.arrivals)) and found.arrivals[0] == 0.0
    ops, timeline = timing.board_step(boards - 1, shape)
    assert timeline.cycles <= found.timeline.cycles
    assert min(s.end for s in timeline.spans if "stage" in ops[s.index].what) == found.arrivals[-1]


def test_stages_of_one_board_add_their_passing_to_one_boards_time() -> None:
    """Moves, hops, bytes and starts between stages."""
    config, shape = replace(GPT2, layers=4), steps.StepShape(1, 40, 40, 1)  # nothing committed
    one = OverlayTiming(config, made(config, 1, 1)).step(shape).timeline.cycles
    four = OverlayTiming(config, made(config, 4, 4))
    machine, found = four.machine, four.step(shape)
    frames = config.hidden * 2 + 36
    passing = 3 * machine.start_cycles + machine.hop_cycles + frames / machine.port_rate
    lines = 2 * -(-config.hidden * 2 // 64)
    assert len([op for op in found.ops if "vote" in op.what]) == VOTES
    assert found.timeline.cycles - one == pytest.approx(3 * (passing + lines), rel=1e-9)


def test_the_shapes_operators_are_those_of_the_lists() -> None:
    config, machine = replace(GPT2, layers=4), machine_of_overlay(overlay())
    plain = step_ops(machine, config, 4, steps.decode(40))
    staged = step_ops(machine, config, 8, steps.decode(40), layout=Layout(8, 2))
    assert len(staged) - len(plain) == 3
    gathers = [op for op in staged if op.what == "gather stage"]
    assert [op.link_bytes for op in gathers] == [config.hidden * 2]
    assert gathers[0].compute == 7 * machine.hop_cycles + config.hidden * 2 / machine.port_rate
    path = next(op for op in staged if op.what == "gather qkv")
    ring = next(op for op in plain if op.what == "gather qkv")
    assert path.link_bytes == 2 * ring.link_bytes and path.compute > ring.compute
    counts = [command_count(config, boards, False, None, stages)
              for boards, stages in ((4, 1), (8, 2))]  # fmt: skip
    listed = [
        sum(op.unit != "control" for op in OverlayTiming(config, plan).step(steps.decode(40)).ops)
        for plan in (made(config, 4, 1), made(config, 8, 2))
    ]
    # Off the critical path: the second list's KV_COMMIT, and its gather of what is timed once.
    assert counts[1] - counts[0] == listed[1] - listed[0] - 2 == 3


def test_cross_links_need_four_cages() -> None:
    config = find_config("llama2-70b")
    with pytest.raises(RequestError, match="take 4 cages of a board; u280 has 2: use one ring"):
        make_target("own-u280", None, config, 64, None, 4, True)
    path = make_target("own-v80", None, config, 64, None, 4)
    rings = make_target("own-v80", None, config, 64, None, 4, True)
    assert isinstance(path, ArrayTarget) and isinstance(rings, ArrayTarget)
    assert (path.layout.hops, rings.layout.hops) == (15, 8)
    assert rings.decode(1024).seconds < path.decode(1024).seconds
    with pytest.raises(RequestError, match="cables between stages need stages"):
        make_target("own-v80", None, config, 64, None, 1, True)
    with pytest.raises(RequestError, match="lists use two ports"):
        make_target("lora_f_v80", None, find_config("gpt2-345m"), 4, None, 2, True)


def test_more_boards_than_heads_are_timed_in_stages_alone() -> None:
    config = find_config("gpt2-345m")  # 16 heads
    with pytest.raises(RequestError, match=r"16 query heads .* use 1 to 16, or 4 stages or more"):
        make_target("own-u280", None, config, 64).decode(128)
    assert make_target("own-u280", None, config, 64, None, 4).decode(128).seconds > 0


# --- hosts --------------------------------------------------------------------------------------

SMALL = find_config("llama2-7b")


def test_splits_have_stages() -> None:
    found, refused = splits(find_config("gpt2-345m"), Hosts("own-u280", None, 1, 64), Load(128))
    pairs = {(split.boards, split.stages) for split in found}
    assert {(64, 4), (64, 16), (32, 2), (16, 1), (1, 1)} <= pairs
    assert (64, 2) not in pairs and (2, 4) not in pairs
    assert any(
        why.startswith("64 boards a replica in 2 stages: the model has 16") for why in refused
    )
    lone = {(s.boards, s.stages): s.lone_ms for s in found}
    alone = make_target("own-u280", None, find_config("gpt2-345m"), 64, None, 4).decode(128)
    assert lone[64, 4] == pytest.approx(1e3 * alone.seconds)


def test_the_best_and_the_outdone() -> None:
    found, _ = splits(SMALL, Hosts("own-u280", None, 2, 8), Load(1024))
    worse = outdone(found)
    named = {(one["boards"], one["stages"]) for one in best(found).values()}
    kept = [s for s, out in zip(found, worse, strict=True) if not out]
    assert named <= {(s.boards, s.stages) for s in kept} and any(worse)

    def marks(split: Split) -> tuple[float, float, float]:
        return split.lone_ms, -split.tokens_per_second, cost(split)

    for split, out in zip(found, worse, strict=True):
        beaten = [all(a <= b for a, b in zip(marks(other), marks(split), strict=True))
                  for other in found if marks(other) != marks(split)]  # fmt: skip
        assert out == any(beaten)


def test_cost_is_boards_hosts_and_electricity(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("years: 2\nhost: {dollars: 5000}\nboards: {u280: {dollars: 1000}}\n")
    paid = prices(path)
    found, _ = splits(SMALL, Hosts("own-u280", None, 2, 8, paid), Load(1024))
    split = next(s for s in found if (s.boards, s.stages) == (8, 1))
    target = make_target("own-u280", None, SMALL, 8)
    assert isinstance(target, ArrayTarget)
    watts = 16 * target.facts.power_watts + 2 * prices().host_watts
    a_second = (16 * 1000 + 2 * 5000) / (2 * 365 * 86400)
    a_second += watts * prices().dollars_per_kwh / 3.6e6
    assert split.dollars_per_million_tokens == pytest.approx(
        1e6 * a_second / split.tokens_per_second
    )
    told = cluster_report(SMALL, "llama2-7b", Hosts("own-u280", None, 2, 8, paid), Load(1024))
    assert told["prices"]["board_dollars"] == 1000
    assert str(path) in told["prices"]["sources"]["u280"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"it is \[\]; expected a mapping"),
        ("year: 3", "field 'year' of it is not known; did you mean 'years'"),
        ("years: 0", "years is 0; expected a number above 0"),
        ("dollars_per_kwh: cheap", "dollars_per_kwh is 'cheap'; expected a number of at least 0"),
        ("host: {dollars: -1}", "host.dollars is -1"),
        ("host: {price: 1}", "field 'price' of host is not known"),
        ("boards: {u280: 8000}", "boards.u280 is 8000; expected a mapping"),
        ("boards: {u280: {source: me}}", "boards.u280 has no dollars"),
        ("boards: {u280: {dollars: true}}", "boards.u280.dollars is True"),
    ],
)
def test_wrong_prices_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=message) as refused:
        prices(path)
    assert not refused.value.usage  # exit code 1: a file's content


def test_missing_prices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none\.yaml: cannot be read"):
        prices(tmp_path / "none.yaml")


# --- commands -----------------------------------------------------------------------------------


def test_70b_on_64_boards_is_planned_and_modelled() -> None:
    words = ["--model", "llama2-70b", "--boards", "64"]
    shown = CliRunner().invoke(plan_command, [*words, "--stages", "4", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert found["fits"] and len(found["board"]) == 64 and len(found["stages"]) == 4
    assert all(not one["spilled"] for one in found["board"])
    times = []
    for stages in ("1", "4"):
        more = ["--design", "own-u280", "--context", "1024", "--stages", stages, "--json"]
        done = CliRunner().invoke(model_command, [*words, *more])
        assert done.exit_code == 0, done.output
        times.append(json.loads(done.output)["latency_ms"])
    assert times[0] != times[1]


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_a_plan_of_64_boards_or_says_why(name: str) -> None:
    """In four stages of 16; models with fewer query heads say which number works."""
    words = ["--model", name, "--boards", "64", "--stages", "4"]
    done = CliRunner().invoke(plan_command, words)
    if done.exit_code:
        assert isinstance(done.exception, RequestError | PlacementError | SystemExit)
        assert "use at most" in str(done.exception) or "would fit" in str(done.exception), name
    else:
        assert "4 stages of 16 boards" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "2", "--context", "128", "--stages", "2"], "--hosts goes with --context"),
        (["--stages", "2", "--beams", "2"], "--beams is timed without --stages"),
        (["--context", "128", "--prices", "x.yaml"], "need --hosts"),
        (["--context", "128", "--stages", "3"], "3 stages of 4 boards were requested"),
        (["--context", "128", "--stages", "0"], "0 stages"),
    ],
)
def test_options_that_conflict_are_refused(words: list[str], message: str) -> None:
    design = ["--design", "own-u280", "--model", "gpt2-345m", "--boards", "4"]
    result = CliRunner().invoke(model_command, [*design, *words])
    assert isinstance(result.exception, RequestError) and message in str(result.exception)
