"""Designs, reports and the floors of our own designs."""

import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_lab.cli.spec import spec
from lora_lab.timing import costs
from lora_lab.timing import step as steps
from lora_lab.timing.command_count import command_count
from lora_lab.timing.designs import ArrayDesign, design_names, load_design
from lora_lab.timing.facts import board_facts, drafts, parameters
from lora_lab.timing.machine import machine_of
from lora_lab.timing.model import run_time, speculate, token_time
from lora_lab.timing.ops import Op
from lora_lab.timing.resources import resources
from lora_lab.timing.schedule import schedule
from lora_lab.timing.shape_ops import step_ops
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import shape_config


def target(design: str, model: str, boards: int = 1, board: str | None = None):
    return make_target(design, board, shape_config(model), boards)


@pytest.mark.parametrize(
    ("design", "boards", "plain", "speculative"),
    [("own-u280", 1, 95, 119), ("own-u280", 4, 370, 429), ("own-v80", 1, 162, 226),
     ("own-v80", 4, 620, 755)],
)  # fmt: skip
def test_floors_of_our_designs(design: str, boards: int, plain: float, speculative: float) -> None:
    """LLaMA2-7B at context 128 with lm_head, each operation charged, with dispatch by the control
    in hardware, host accesses and sums of weights. With a tree 1 to 2% below what is modelled: the
    trees have three rows, whose acceptance is interpolated."""
    found = target(design, "llama2-7b", boards)
    assert token_time(found, "", 128).tokens_per_second >= plain
    assert token_time(found, "", 128, "sd").tokens_per_second >= speculative


@pytest.mark.parametrize("model", ["llama2-7b", "gpt2-345m"])
def test_each_operation_is_charged_to_our_designs(model: str) -> None:
    """None takes no time; those of the papers' designs are in the fitted start-up."""
    config = shape_config(model)
    for name in design_names():
        design = load_design(name)
        if not isinstance(design, ArrayDesign):
            continue
        assert (design.operations == "charged") == (design.origin == "own")
        machine = machine_of(design, board_facts(design.boards[0]))
        found = step_ops(machine, config, 1, steps.decode(128))
        commands = command_count(config, 1, design.activation_bytes == 1)
        if design.origin == "own":
            assert all(op.compute > 0 for op in found)
            what = Counter(op.what.split()[0] for op in found if op.layer in (-1, 0))
            assert {"embed", "kv", "activation", "residual", "quantize", "argmax"} <= set(what)
            assert ("rope" in what) == (config.rope is not None)
            # a norm is two commands and one operator; the last layer's queries are packed in
            # lists, which compute selected rows alone there
            norms, packed = 2 * config.layers + 1, 1
            assert len(found) + norms + packed == commands
        else:
            assert {op.unit for op in found} <= {"mpu", "vfu"}


def test_lm_head_and_scales_have_the_bytes_of_lists() -> None:
    """LLaMA2-7B: 34 lines a block of groups of 128, lm_head in INT8."""
    found = token_time(target("own-u280", "llama2-7b"), "", 128).bytes["weights"]
    layers = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    assert found == layers // 2 * 34 // 32 + 32000 * 4096
    listed = token_time(target("source-u280", "llama2-7b"), "", 128).bytes["weights"]
    assert found == listed


def test_a_tree_commits_what_was_accepted() -> None:
    """Two of two rows on average, three of four: each is moved into the cache."""
    found = target("own-u280", "llama2-7b")
    taken = [
        one.by["kv"] for one in (found.decode(128), found.verify(2, 128), found.verify(4, 128))
    ]
    assert taken == sorted(taken) and taken[2] > 2 * taken[0]


def test_long_context_floor() -> None:
    found = target("own-v80", "llama3.1-8b")
    assert token_time(found, "", 16384).tokens_per_second >= 20


def test_memory_is_the_limit_of_long_contexts() -> None:
    """own-v80 at 131,072 positions: K and V, INT8, take longer to arrive than the passes over the
    scores; with vector lanes alone these took four times as long."""
    config, board = shape_config("llama3.1-8b"), board_facts("v80")
    design = load_design("own-v80")
    assert isinstance(design, ArrayDesign)
    read = 2 * config.layers * config.kv_heads * config.head_dim * 131072 * design.kv_bytes
    read_ms = 1e3 * read / (design.hbm_efficiency * board.bytes_per_second)
    by = token_time(target("own-v80", "llama3.1-8b"), "", 131072).breakdown_ms
    assert by["vfu"] < read_ms < by["vfu"] + by["attention"] < 1.03 * read_ms
    few = machine_of(replace(design, softmax_lanes=0), board)
    passes = costs.softmax_cycles(few, 1, config.heads, 131072) * config.layers
    assert few.seconds(passes) * 1e3 > 4 * read_ms
    assert not resources(design, board).excess(board)


@pytest.mark.parametrize(
    ("design", "boards", "plain"),
    [("own-u280", 1, 96), ("own-u280", 4, 380), ("own-v80", 1, 165), ("own-v80", 4, 640)],
)
def test_what_the_units_of_our_designs_would_reach(design: str, boards: int, plain: float) -> None:
    """Without dispatch, host accesses and sums of weights."""
    by = token_time(target(design, "llama2-7b", boards), "", 128).breakdown_ms
    assert by["dispatch"] > 10 * by["host"] > 0
    units = sum(value for name, value in by.items() if name not in ("dispatch", "host", "scrub"))
    assert 1e3 / units >= plain


def test_control_is_charged_to_our_designs_alone() -> None:
    for name in design_names():
        design = load_design(name)
        if isinstance(design, ArrayDesign):
            assert (design.control == "sequencer") == (design.origin == "own")
            by = token_time(target(name, "gpt2-345m"), "", 128).breakdown_ms
            assert ({"dispatch", "host", "scrub"} <= set(by)) == (design.origin == "own")


def test_firmware_fetches_no_weights_before_it_starts_a_command() -> None:
    design = load_design("own-u280")
    assert isinstance(design, ArrayDesign)
    by_firmware = machine_of(replace(design, control="firmware"), board_facts("u280"))
    assert by_firmware.prefetch_cycles == 0
    assert machine_of(design, board_facts("u280")).prefetch_cycles > 0


def test_weights_are_fetched_one_command_ahead_at_most() -> None:
    """The third stream begins with the second operator, though memory is free before."""
    ops = [Op("mpu", "weights", "", 0, compute=50.0, stream=one) for one in (10.0, 10.0, 120.0)]
    found = schedule(ops, prefetch_cycles=1000.0, keep=True)
    assert [span.begin for span in found.spans] == [0, 50, 100]
    assert found.cycles == 50 + 120


def test_our_designs_claim_no_more_bandwidth_than_was_calibrated() -> None:
    for name in design_names():
        design = load_design(name)
        if design.origin == "own":
            assert design.hbm_efficiency <= parameters()["lora_hbm_efficiency"].value
            assert isinstance(design, ArrayDesign) and design.lm_head


def test_breakdown_sums_to_the_latency() -> None:
    for design, boards in (("lora-f", 4), ("dfx", 2), ("own-u280", 4), ("flightllm", 1)):
        report = token_time(target(design, "llama2-7b", boards), "llama2-7b", 300)
        assert sum(report.breakdown_ms.values()) == pytest.approx(report.latency_ms, rel=1e-9)
        assert all(0 <= share <= 1 for share in report.utilisation.values())


def test_a_model_of_70_billion_on_64_boards_is_timed_in_seconds() -> None:
    began = time.thread_time()  # other load on the machine does not count
    report = token_time(target("own-v80", "llama2-70b", 64), "llama2-70b", 1024)
    assert time.thread_time() - began < 4.0
    assert report.breakdown_ms["link_exposed"] > 0


def test_more_boards_are_faster_and_their_overheads_show() -> None:
    times = [
        run_time(target("lora-f", "gpt2-345m", boards), "", 64, 64).latency_ms
        for boards in (1, 2, 4)
    ]
    assert times[0] > times[1] > times[2]
    assert times[0] / times[2] < 4 and times[0] / times[2] < 2 * times[0] / times[1]


def test_long_outputs_are_sampled_close_to_the_exact_sum() -> None:
    found = target("lora-q", "gpt2-345m")
    sampled = run_time(found, "", 8, 400).latency_ms
    exact = found.prefill(8).seconds + sum(found.decode(9 + i).seconds for i in range(400))
    assert sampled == pytest.approx(1e3 * exact, rel=1e-6)


def test_the_prefetch_buffer_hides_memory_only_as_far_as_it_reaches() -> None:
    """Without it, gaps add to the stream; with a boundless one, only the stream is left."""
    design = load_design("own-u280")
    assert isinstance(design, ArrayDesign)
    machine = machine_of(design, board_facts("u280"))
    ops = step_ops(machine, shape_config("llama2-7b"), 1, steps.decode(128))
    stream = sum(op.stream for op in ops)
    none, some, all_of_it = (schedule(ops, size).cycles for size in (0.0, 300.0, 1e12))
    assert none > some > all_of_it >= stream


def test_local_work_hides_gathers_and_stalled_ones_are_exposed() -> None:
    overlapped = token_time(target("lora-f", "opt-6.7b", 4), "", 64)
    stalled = token_time(target("dfx", "opt-6.7b", 4), "", 64)
    assert overlapped.breakdown_ms["link_exposed"] < stalled.breakdown_ms["link_exposed"]


def test_scaling_of_lora_f_is_better_than_dfx() -> None:
    """VI.B: DFX stalls at every gather and replicates its LayerNorms."""
    from lora_lab.timing.analyses import scaling

    lora, dfx = scaling("lora-f"), scaling("dfx")
    assert lora[2] > dfx[2] and lora[4] > dfx[4]


def test_aat_of_one_row_is_one_and_plain_decoding_never_loses() -> None:
    draft = drafts()["longspec"]
    assert draft.aat(1, 128) == pytest.approx(1.0)
    found = target("flightllm-sd", "llama3.1-8b", board="v80")
    best = speculate(found, 128)
    assert best.per_token <= found.decode(128).seconds
    assert speculate(found, 128, 1).per_token == pytest.approx(found.decode(128).seconds)


@pytest.mark.parametrize("context", [1, 128, 1000, 16384, 1 << 20])
def test_no_tree_emits_more_than_a_token_a_row_and_each_row_adds_less(context: int) -> None:
    draft = drafts()["longspec"]
    aat = [draft.aat(rows, context) for rows in range(1, 257)]
    assert all(tokens <= rows for rows, tokens in enumerate(aat, 1))
    gains = [b - a for a, b in pairwise(aat)]
    assert all(0 < later < earlier < 1 for earlier, later in pairwise(gains))
    fewest = draft.published[0]
    assert aat[1] < 1.8 and sum((aat[1] - 1) ** k for k in range(fewest)) == pytest.approx(aat[3])


def test_where_acceptance_comes_from_is_told() -> None:
    draft = drafts()["longspec"]
    for rows, words in (
        (1, "plain"),
        (2, "interpolated"),
        (4, "read"),
        (69, "read"),
        (70, "extra"),
    ):
        assert words in draft.basis(rows)
    found = token_time(target("own-u280", "llama2-7b"), "", 128, "sd", 3)
    assert "interpolated" in found.details["aat_basis"]
    said = CliRunner().invoke(spec, ["design", "own-u280", "llama2-7b", "-c", "128"]).stdout
    assert "note: AAT of 3 rows: interpolated" in said and "note: no hardware of this" in said


def test_what_does_not_go_together_is_refused_in_one_line() -> None:
    for arguments, words in (
        (("lora-x", None, "gpt2-345m", 1), "did you mean 'lora-"),
        (("lora-f", "v80", "gpt2-345m", 1), "it exists for u280"),
        (("flightllm", None, "llama2-7b", 2), "one board only"),
        (("lora-f", None, "gpt2-345m", 17), "query heads"),
        (("lora-f", "u281", "gpt2-345m", 1), "did you mean 'u280'"),
    ):
        design, board, model, boards = arguments
        with pytest.raises(RequestError, match=words):
            token_time(make_target(design, board, shape_config(model), boards), model, 16)
    with pytest.raises(RequestError, match="no draft model"):
        token_time(target("lora-f", "gpt2-345m"), "", 16, "sd")
    with pytest.raises(RequestError, match="context 0 is out of range"):
        token_time(target("lora-f", "gpt2-345m"), "", 0)


def test_a_model_that_does_not_fit_is_said() -> None:
    notes = token_time(target("lora-f", "llama2-7b"), "", 16).notes
    assert any("does not fit" in note for note in notes)
    notes = token_time(target("lora-f", "gpt2-345m"), "", 1).notes
    assert not any("does not fit" in note for note in notes)


def test_boards_on_which_nothing_runs_are_said() -> None:
    for boards, said in ((3, True), (4, False), (16, False)):
        notes = token_time(target("lora-f", "gpt2-345m", boards), "", 1).notes
        assert any("expected 1, 2, 4, 8" in note for note in notes) == said
