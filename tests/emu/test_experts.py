"""Mixtures of experts on boards: the oracle's bytes over boards, kernels, cuts, batches and trees;
what experts that no row chose cost; lists and boards that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import CommandError, LoraError, ModelError, RequestError, TransportError
from lora_host.overlay import load_overlay
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.compile.isa import Command, Experts, Vector, encode, float_bits
from lora_sdk.compile.lower import lower
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.quantization import MatrixFormat
from lora_sdk.model.spec import ModelConfig
from lora_sdk.opening.opening import plan_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.banks import MatrixPlacement
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.report import report, table
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import verify_tree
from tests.hostile_lists import Board
from tests.moe_configs import MOE_CONFIGS
from tests.oracle import Oracle, load_weights
from tests.oracle.adapted import Adapted
from tests.parity.score import first_tokens
from tests.unit import plan_rig
from tests.variants import variant

LENGTH = 36  # beyond a tile of positions
NAN = np.float16(np.nan)


@pytest.fixture(scope="module")
def expected(oracle_logits: Callable[[str, int], Logits]) -> Callable[[str], Logits]:
    return lambda name: oracle_logits(name, LENGTH)


def tokens_of(name: str) -> list[int]:
    return first_tokens(name, LENGTH)


LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
ADAPTED = ("qwen3_moe", "qwen2_moe", "granitemoeshared", "glm4_moe", *LATENT, "deepseek_v2_lite")


@pytest.mark.parametrize("name", MOE_CONFIGS)
def test_boards_kernels_and_cuts_give_the_oracles_bytes(
    name: str, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, tokens, want = folder_of(name), tokens_of(name), expected(name)
    for boards in (1, 2, 4):
        with open_runner(folder, boards) as runner:
            assert Driver(runner).feed(0, tokens, (16, 1, 7)).tobytes() == want.tobytes()
    with open_runner(folder, 2, kernels="numpy") as runner:
        got = Driver(runner).feed(0, tokens[:9], (4, 1))
    assert got.tobytes() == want[:9].tobytes()


@pytest.mark.parametrize(
    ("name", "boards"),
    [("mixtral", 1), ("qwen3_moe_mixed", 2), ("gpt_oss", 2), *((name, 2) for name in LATENT)],
)
def test_batches_and_trees_change_nothing(
    name: str, boards: int, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, tokens, want = folder_of(name), tokens_of(name), expected(name)
    with open_runner(folder, boards) as runner:
        starts = {2: tokens[:20], 0: tokens[:13], 1: tokens[:11]}
        driver = Driver(runner)
        for number, got in driver.step(starts, interleave=True).items():
            assert got.tobytes() == want[: len(starts[number])].tobytes()
        one = driver.step({n: [tokens[len(starts[n])]] for n in (1, 0, 2)})
        for number, got in one.items():
            assert got.tobytes() == want[len(starts[number])].tobytes()
    with open_runner(folder, boards, sequences=1) as runner:
        verify_tree(runner, tokens, want, 29)


@pytest.mark.parametrize("name", ADAPTED)
def test_adapters_of_attention_and_shared_experts_give_the_oracles_bytes(
    name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, tokens = folder_of(name), tokens_of(name)
    path = write_adapter(variant(name), Folder("a"), tmp_path / "a")
    checkpoint = Checkpoint.open(folder)
    factors = read_factors(variant(name), path)
    for own, (a, b, scale) in factors.items():
        source = checkpoint.source(own)  # outputs as boards rotate them
        rows = source.order if checkpoint.config.latent is None else source.outputs
        factors[own] = a, b if rows is None else b[list(rows)], scale
    want = Adapted(checkpoint.config, load_weights(checkpoint), factors).logits(tokens)
    for boards, mode in ((1, "auto"), (2, "s")):
        with open_runner(folder, boards, adapters=AdapterOptions(1, 16, mode=mode)) as runner:
            slots, driver = AdapterSlots(runner.cluster, runner.plan), Driver(runner)
            slots.load("a", path)
            slots.attach(1, "a")
            driver.adapters[1] = slots.slot_of(1)
            assert driver.feed(1, tokens, (16, 1, 7)).tobytes() == want.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", MOE_CONFIGS)
def test_eight_boards_and_stages(
    name: str, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, tokens, want = folder_of(name), tokens_of(name), expected(name)
    eight = (8, 1) if variant(name).config["num_attention_heads"] >= 8 else (4, 1)
    for boards, stages in (eight, (4, 2)):
        with open_runner(folder, boards, stages=stages) as runner:
            assert Driver(runner).feed(0, tokens, (16, 1, 7)).tobytes() == want.tobytes()


# What experts that no row has chosen cost.


def of_expert(placed: MatrixPlacement, number: int) -> MatrixPlacement:
    return list(placed.of_experts)[number]


def chosen_by(folder: Path, token: int) -> list[int]:
    """The experts of layer 0 that a text of one token chooses."""
    checkpoint = Checkpoint.open(folder)
    found: list[int] = []

    class Noted(Oracle):
        def _route(self, logits, experts, bias=None):  # type: ignore[no-untyped-def]
            weights = super()._route(logits, experts, bias)
            found.append(sorted(weights))
            return weights

    Noted(checkpoint.config, load_weights(checkpoint)).logits([token])
    return found[0]  # type: ignore[return-value]


def test_weights_of_experts_that_no_row_chose_are_not_read(
    folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, token = folder_of("qwen3_moe"), tokens_of("qwen3_moe")[0]
    chosen = chosen_by(folder, token)
    for kernels in ("native", "numpy"):
        with open_runner(folder, 1, kernels=kernels) as runner:
            placed = runner.plan.boards[0].matrices["layer.0.expert_down"]
            for expert in set(range(8)) - set(chosen):
                poison(runner, of_expert(placed, expert))
            got = Driver(runner).feed(0, [token], (1,))
            assert got.tobytes() == expected("qwen3_moe")[:1].tobytes()
            poison(runner, of_expert(placed, chosen[1]))
            with pytest.raises(ModelError, match="layer 0 experts expert_down"):
                Driver(runner).feed(0, [token], (1,))


def poison(runner, placed: MatrixPlacement) -> None:  # type: ignore[no-untyped-def]
    """NaN in the first block of a matrix."""
    bank, offset = placed.address(0)
    runner.cluster.write(0, bank, offset, np.full(4096, NAN).tobytes())


@pytest.mark.parametrize("boards", [1, 2])
def test_a_step_reads_each_chosen_expert_once(
    boards: int, folder_of: Callable[[str], Path]
) -> None:
    """Of 16 rows as of one: the boards count the bytes that their matmuls read."""
    folder, tokens = folder_of("olmoe"), tokens_of("olmoe")
    checkpoint = Checkpoint.open(folder)
    notes: list[list[set[int]]] = [[], []]

    class Noted(Oracle):
        layer = -1

        def _experts(self, x, layer, experts):  # type: ignore[no-untyped-def]
            self.layer = layer
            return super()._experts(x, layer, experts)

        def _route(self, logits, experts, bias=None):  # type: ignore[no-untyped-def]
            weights = super()._route(logits, experts, bias)
            notes[self.layer].append(set(weights))
            return weights

    Noted(checkpoint.config, load_weights(checkpoint)).logits(tokens[:17])
    with open_runner(folder, boards) as runner:
        driver = Driver(runner)
        for rows, size in ((range(16), 16), (range(16, 17), 1)):
            before = [runner.cluster.emulated.weight_bytes(b) for b in range(boards)]
            driver.feed(0, [tokens[row] for row in rows], (size,))
            for plan in runner.plan.boards:
                wanted = 0
                for placed in plan.matrices.values():
                    each = placed.spec.blocks * placed.spec.block_bytes
                    layer = placed.spec.layer
                    read = {e for row in rows for e in notes[layer][row]} if layer in (0, 1) else ()
                    wanted += each * (len(read) if placed.spec.experts else 1)
                    if placed.spec.experts and size == 1:
                        assert len(read) == 4 < 8
                found = runner.cluster.emulated.weight_bytes(plan.board) - before[plan.board]
                assert found == wanted


def test_two_wrong_bits_stop_the_rows_that_choose_their_expert(
    folder_of: Callable[[str], Path],
) -> None:
    folder, token = folder_of("qwen3_moe"), tokens_of("qwen3_moe")[0]
    chosen = chosen_by(folder, token)
    other = next(e for e in range(8) if e not in chosen)
    with open_runner(folder, 1) as runner:
        placed = runner.plan.boards[0].matrices["layer.0.expert_up"]
        for expert, fails in ((other, False), (chosen[0], True)):
            bank, offset = of_expert(placed, expert).address(0)
            runner.cluster.emulated.fault(0, abi.FAULT_ECC_DOUBLE, bank, offset // 8, 3)
            if not fails:
                Driver(runner).feed(0, [token], (1,))
                continue
            with pytest.raises(TransportError, match="two wrong bits"):
                Driver(runner).feed(0, [token], (1,))


# Lists that are wrong.


def first(commands: list[Command], kind: type[Command], combine: bool = False) -> int:
    for index, one in enumerate(commands):
        routes = isinstance(one, Vector) and one.op == abi.VEC_ROUTE_CHOSEN
        combines = bool(one.flags & abi.FLAG_COMBINE)
        if (kind is Vector and routes) or (kind is Experts is type(one) and combines == combine):
            return index
    raise AssertionError(kind)


@pytest.fixture(scope="module")
def board():  # type: ignore[no-untyped-def]
    found = Board(plan_rig.EXPERTS, "lora_f_u280")
    yield found
    found.cluster.close()


WRONG = [
    (Experts, {"chosen": 0}, "SIZE"),
    (Experts, {"chosen": 6}, "SIZE"),  # of 5 experts
    (Experts, {"chosen": 4}, "ADDRESS"),  # outputs of four do not fit the row
    (Experts, {"experts": 0}, "SIZE"),
    (Experts, {"experts": abi.MAX_EXPERTS + 1}, "SIZE"),
    (Experts, {"experts": 1024}, "ADDRESS"),  # their weights end behind what is reserved
    (Experts, {"weight_type": 7}, "OPCODE"),
    (Experts, {"flags": abi.FLAG_ROW_SCALES}, "OPCODE"),  # of FP16
    (Experts, {"weight_type": abi.WEIGHT_INT8, "scale_line": 1 << 31}, "ADDRESS"),
    (Experts, {"weight_type": abi.WEIGHT_INT8, "scale_bank": 60}, "ADDRESS"),
    (Experts, {"weight_type": abi.WEIGHT_INT8, "k": abi.MAX_INT8_K + 1}, "SIZE"),
    (Experts, {"weight_type": MatrixFormat("w4a8", 32).weight_type, "k": 40}, "SIZE"),
    (Experts, {"merge": 0}, "SIZE"),
    (Experts, {"bank_count": 0}, "ADDRESS"),
    (Experts, {"k": 0}, "SIZE"),
    (Experts, {"k": 1 << 20, "n": 1 << 20}, "ADDRESS"),
    (Experts, {"weight_line": 1 << 31}, "ADDRESS"),
    (Experts, {"chosen_stride": 8}, "ADDRESS"),
    (Experts, {"chosen_offset": 2}, "ADDRESS"),
    (Experts, {"x_offset": 1 << 30}, "ADDRESS"),
    (Experts, {"flags": abi.FLAG_NO_BIAS}, "OPCODE"),
    (Experts, {"flags": abi.FLAG_EXPERT_BIAS, "scale_line": 1 << 31}, "ADDRESS"),
    (Vector, {"extra": 0}, "SIZE"),
    (Vector, {"extra": 6}, "SIZE"),
    (Vector, {"columns": abi.MAX_EXPERTS + 1}, "SIZE"),
    (Vector, {"y_stride": 16}, "ADDRESS"),
    (Vector, {"x_offset": 2}, "ADDRESS"),
]


@pytest.mark.parametrize(("kind", "fields", "status"), WRONG, ids=str)
def test_a_wrong_list_is_refused(kind, fields, status, board: Board) -> None:  # type: ignore[no-untyped-def]
    commands = lower(plan_rig.EXPERTS, board.plan, 0)
    at = first(commands, kind)
    commands[at] = replace(commands[at], **fields)
    name = {Experts: "EXPERTS", Vector: "VECTOR"}[kind]
    with pytest.raises(CommandError, match=rf"command {at} \({name}\)") as error:
        board.run(encode(commands, board.plan, 0, 0))
    assert error.value.failure is not None
    assert error.value.failure.status == f"LORA_ERR_{status}"


SIGMOID = [
    ({"b_line": 0}, "SIZE"),  # no groups
    ({"b_line": 4 | 2 << 16}, "SIZE"),  # of 6 experts
    ({"b_line": 6 | 6 << 16}, "SIZE"),  # groups of one
    ({"b_line": 2 | 3 << 16}, "SIZE"),  # more than there are
    ({"b_line": 3 | 1 << 16}, "SIZE"),  # one of two experts, of which rows choose three
    ({"b_line": 2}, "SIZE"),
    ({"b_line": 0xFFFFFFFF}, "SIZE"),
    ({"first": 3}, "SIZE"),
    ({"scalar": 0}, "SIZE"),
    ({"scalar": float_bits(float("inf"))}, "SIZE"),
    ({"scalar": float_bits(float("nan"))}, "SIZE"),
    ({"scalar": float_bits(-1.0)}, "SIZE"),
    ({"a_bank": abi.NO_BANK}, "ADDRESS"),
    ({"a_line": 1 << 31}, "ADDRESS"),
    ({"extra": 7}, "SIZE"),
    ({"columns": abi.MAX_EXPERTS + 2}, "SIZE"),
]


@pytest.mark.parametrize(("fields", "status"), SIGMOID, ids=str)
def test_a_wrong_sigmoid_route_is_refused(fields, status) -> None:  # type: ignore[no-untyped-def]
    board = Board(plan_rig.EXPERTS_SIGMOID, "lora_f_u280")
    commands = lower(plan_rig.EXPERTS_SIGMOID, board.plan, 0)
    at = next(
        i
        for i, one in enumerate(commands)
        if isinstance(one, Vector) and one.op == abi.VEC_ROUTE_SIGMOID
    )
    board.run(encode(commands, board.plan, 0, 0))
    commands[at] = replace(commands[at], **fields)
    with pytest.raises(CommandError, match=rf"command {at} \(VECTOR\)") as error:
        board.run(encode(commands, board.plan, 0, 0))
    assert error.value.failure is not None
    assert error.value.failure.status == f"LORA_ERR_{status}"
    board.cluster.close()


@pytest.mark.parametrize("kernels", ["native", "numpy"])
def test_a_row_that_names_experts_out_of_order_fails(kernels: str) -> None:
    """EXPERTS of where nothing has written: every row names expert 0 three times."""
    board = Board(plan_rig.EXPERTS, "lora_f_u280", kernels)
    commands = lower(plan_rig.EXPERTS, board.plan, 0)
    at = first(commands, Experts)
    commands[at] = replace(commands[at], chosen_offset=board.plan.boards[0].onchip["head"].offset)
    with pytest.raises(LoraError, match="EXPERTS"):
        board.run(encode(commands, board.plan, 0, 0))
    board.cluster.close()


# What is refused by feature, and what is said before anything runs.


def test_boards_without_units_for_experts_are_refused(folder_of: Callable[[str], Path]) -> None:
    path = folder_of("mixtral")
    for other in ({"kernels": "rtl"}, {"devices": ["sim:u280"]}, {"devices": ["xrt:0"]}):
        options = EngineOptions(model=path, **other)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="mixtral: the hardware source has no mixture of ex"):
            plan_model(options)
    plan_model(EngineOptions(model=path))


def test_a_plan_says_what_a_token_reads() -> None:
    config, overlay = plan_rig.EXPERTS, plan_rig.overlay()
    plan = make_plan(config, overlay, plan_rig.board(), 2)
    found = report(plan)["experts"]
    each = 3 * 144 * 72 * 2 * len(config.experts.layers)  # type: ignore[union-attr]
    assert (found["expert_bytes"], found["expert_bytes_a_token"]) == (5 * each, 3 * each)
    assert "experts: each row takes 3 of 5 in 2 layers; a token reads" in table(report(plan))
    routers = [one for board in plan.boards for one in board.replicas if one.what == "routers"]
    assert [one.bytes for one in routers] == [2 * 144 * 5 * 2]
    assert plan.weight_bytes - plan.replica_bytes == model_bytes(config)


def test_a_plan_of_quantized_experts_counts_their_bytes() -> None:
    wide = plan_rig.EXPERTS_WIDE
    experts = wide.experts
    assert experts is not None
    weights = 3 * wide.hidden * experts.ffn * len(experts.layers)
    for scheme, bits in (("w8a8", 8), ("w4a8", 4.625), ("w4a16", 4.625)):  # FP16 and 4 bits by 32
        config = plan_rig.quantized(wide, scheme)
        overlay = load_overlay(choose_overlay(config, "u280"))
        found = report(make_plan(config, overlay, plan_rig.board(), 2))["experts"]
        assert found["expert_bytes"] == 5 * weights * bits / 8
        assert found["expert_bytes_a_token"] == 3 * weights * bits / 8


def model_bytes(config: ModelConfig) -> int:
    experts = config.experts
    assert experts is not None
    d, heads = config.hidden, config.heads * config.head_dim
    attention = d * heads * 2 + 2 * d * config.kv_heads * config.head_dim
    dense = (config.layers - len(experts.layers)) * 3 * d * config.ffn
    sparse = len(experts.layers) * (3 * d * experts.ffn + d) * experts.count
    norms = (2 * config.layers + 1) * d
    return 2 * (config.layers * attention + dense + sparse + norms + 2 * d * config.vocabulary)


def test_experts_that_do_not_fit_are_read_from_ddr(
    folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    name = "qwen3_moe"
    small = replace(load_overlay("lora_f_u280"), board=plan_rig.board(hbm=5 << 13))
    with open_runner(folder_of(name), 1, overlay=small, context=64, sequences=1) as runner:
        spilled = [one for one in runner.plan.boards[0].spilled if one.spec.experts]
        assert spilled and len(spilled) < 4
        assert "spill: board 0 reads" in table(report(runner.plan))
        got = Driver(runner).feed(0, tokens_of(name), (16, 1, 7))
    assert got.tobytes() == expected(name).tobytes()
