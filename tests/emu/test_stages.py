"""Stages of layers: groups of boards that pass rows on, with the bytes of one board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import CommandError, LinkError, LoraError, ModelError
from lora_sdk import BeamSearchParams, Engine, SamplingParams
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.compile.isa import encode
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.runner import LIST_ID, KvOp, Row, Runner
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu import test_many_boards as many
from tests.oracle.adapted import Adapted
from tests.oracle.forward import Oracle, load_weights
from tests.quantized import SCHEMES, QuantizedModel
from tests.variants import Variant, write_checkpoint

LAYERS = {
    "llama": {**many.CONFIGS["llama"], "num_hidden_layers": 5},
    "gpt2": {**many.CONFIGS["gpt2"], "n_layer": 4},
    "gemma2": {**many.CONFIGS["gemma2"], "num_hidden_layers": 4},
    "bloom": {**many.CONFIGS["bloom"], "n_layer": 4},
    "opt": {**many.CONFIGS["opt"], "num_hidden_layers": 4},
    "olmo2": {**many.CONFIGS["olmo2"], "num_hidden_layers": 4},
}
CUTS = (7, 1, 5, 1)
Made = tuple[Path, Logits]
tokens_of = many.tokens_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A folder and the logits that the independent implementation gives."""
    root, known = tmp_path_factory.mktemp("stages"), dict[str, Made]()

    def of(name: str) -> Made:
        if name not in known:
            folder = write_checkpoint(Variant(name, LAYERS[name]), root / name)
            checkpoint = Checkpoint.open(folder)
            oracle = Oracle(checkpoint.config, load_weights(checkpoint))
            known[name] = folder, oracle.logits(tokens_of(name))
        return known[name]

    return of


def feed(folder: Path, name: str, boards: int, stages: int, **options: Any) -> bytes:
    chosen: dict[str, Any] = {"sequences": 1, "context": 64, **options}
    with open_runner(folder, boards, stages=stages, **chosen) as runner:
        return Driver(runner).feed(0, tokens_of(name), CUTS).tobytes()


FAST = [("llama", 4, 2), ("llama", 4, 4), ("llama", 32, 4), ("opt", 4, 2), ("gpt2", 64, 4)]
CASES = [
    *FAST,
    *((name, 8, 4) for name in LAYERS),
    *((name, 2, 2) for name in LAYERS),
    ("llama", 16, 4), ("llama", 32, 2), ("llama", 64, 4), ("gemma2", 32, 2), ("olmo2", 64, 4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "boards", "stages"),
    [case if case in FAST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_stages_give_the_bytes_of_one_board(
    name: str, boards: int, stages: int, made: Callable[[str], Made]
) -> None:
    """Also on a path of four layers, five layers over four stages, more than eight boards a stage,
    and with twice as many boards as query heads (gpt2 on 64)."""
    folder, want = made(name)
    assert feed(folder, name, boards, stages) == want.tobytes()


@pytest.mark.slow
def test_64_boards_in_8_stages(tmp_path: Path) -> None:
    config = {**many.CONFIGS["llama"], "num_hidden_layers": 11}
    folder = write_checkpoint(Variant("llama", config), tmp_path)
    assert feed(folder, "llama", 64, 8) == feed(folder, "llama", 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [4, 8, 16])
def test_70b_in_small_on_64_boards(stages: int, tmp_path: Path) -> None:
    """LLaMA2-70B's 80 layers, 64 heads and 8 KV heads with a 32nd of its columns."""
    shape = {
        **many.CONFIGS["llama"], "num_hidden_layers": 80, "hidden_size": 256,
        "intermediate_size": 896, "head_dim": 4, "num_key_value_heads": 8,
    }  # fmt: skip
    folder = write_checkpoint(Variant("llama", shape), tmp_path / "model")
    found = []
    for boards, parts in ((1, 1), (64, stages)):
        with open_runner(folder, boards, sequences=1, context=64, stages=parts) as runner:
            found.append(Driver(runner).feed(0, tokens_of("llama")[:5], (4, 1)).tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "scheme",
    [
        "w8a8_dynamic",
        *(pytest.param(s, marks=pytest.mark.slow) for s in ("w8a8", "w4a8_dynamic_order")),
    ],
)
def test_quantized_models_too(scheme: str, made: Callable[[str], Made]) -> None:
    """Scales of a row's shares, exchanged within a stage; static scales of K and V by layer."""
    folder = made("llama")[0]
    model = QuantizedModel(folder, SCHEMES[scheme])
    want = model.oracle().logits(tokens_of("llama"))
    assert feed(folder, "llama", 8, 4, model=model) == want.tobytes()


def test_numpy_kernels_too(made: Callable[[str], Made]) -> None:
    folder, want = made("gpt2")
    assert feed(folder, "gpt2", 4, 2, kernels="numpy") == want.tobytes()


@pytest.mark.parametrize("mode", ["auto", pytest.param("s", marks=pytest.mark.slow)])
def test_adapters_of_a_stages_own_layers(
    mode: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    folder, tokens = made("gpt2")[0], tokens_of("gpt2")[:9]
    which = Variant("gpt2", LAYERS["gpt2"])
    path = write_adapter(which, Folder("plain", rank=12), tmp_path / "adapter")
    checkpoint = Checkpoint.open(folder)
    adapted = Adapted(checkpoint.config, load_weights(checkpoint), read_factors(which, path))
    options = AdapterOptions(1, 16, mode)
    with open_runner(folder, 8, sequences=1, context=64, adapters=options, stages=2) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        held.load("plain", path)
        held.attach(0, "plain")
        driver = Driver(runner)
        driver.adapters[0] = held.slot_of(0)
        got = driver.feed(0, tokens, CUTS)
    assert got.tobytes() == adapted.logits(tokens).tobytes()


def test_ports_send_the_planned_bytes(made: Callable[[str], Made]) -> None:
    with open_runner(made("llama")[0], 8, sequences=1, context=64, stages=4) as runner:
        emulated, plan = runner.cluster.emulated, runner.plan
        assert emulated is not None
        driver = Driver(runner)
        driver.step({0: tokens_of("llama")[:3]})
        ports = plan.link_bytes(3, 3)
        before = {port: emulated.link_bytes(*port) for port in ports}
        driver.step({0: tokens_of("llama")[3:6]})
        for port, sent in ports.items():
            after = emulated.link_bytes(*port)
            found = tuple(b - a for a, b in zip(before[port], after, strict=True))
            assert found == (sent.frames, sent.payload), port


def test_hidden_states_come_from_the_stage_of_their_layer(made: Callable[[str], Made]) -> None:
    """The input of each layer, and the last one's output."""
    found = []
    for boards, stages in ((1, 1), (4, 2)):
        with open_runner(
            made("llama")[0], boards, sequences=1, context=64, stages=stages,
            hidden_taps=(0, 1, 2, 3, 5),
        ) as runner:  # fmt: skip
            rows = [
                Row(0, i, token, i, parent=i - 1, want_hidden=True)
                for i, token in enumerate(tokens_of("llama")[:5])
            ]
            found.append(runner.step(rows, [KvOp.length(0, 0), KvOp.table(0, 0, 4)]).hidden)
    assert found[0].shape == (5, 5, 544)
    assert np.array_equal(*found)


PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


def engine(folder: Path, boards: int, stages: int, **options: Any) -> Engine:
    return Engine(
        model=folder, boards=boards, stages=stages, context=64, **{"max_sequences": 2, **options}
    )


def test_boards_of_stages_choose_tokens(made: Callable[[str], Made]) -> None:
    """Greedy tokens without the host, chosen by the host, sampled ones, and beams."""
    found = []
    for boards, stages, chooser in ((1, 1, "boards"), (8, 4, "boards"), (8, 4, "host")):
        with engine(made("llama")[0], boards, stages, greedy=chooser) as one:
            sampled = SamplingParams(max_tokens=12, temperature=0.9, seed=3, ignore_eos=True)
            beams = BeamSearchParams(beam_width=2, max_tokens=6)
            found.append([one.generate("a", params).text for params in (PARAMS, sampled)])
            found[-1].append(one.beam_search("ab", beams).text)
            stats = one.cluster.stats()
            assert (stats.tokens > 0) == (chooser == "boards")
    assert found[0][0] and found[0] == found[1] == found[2]


@pytest.mark.parametrize("kv", ["fp16", "int8-heads"])
def test_k_and_v_move_between_layouts(kv: str, made: Callable[[str], Made]) -> None:
    """All layers' K and V, out of four stages and into a board, and back."""
    folder, tokens = made("llama")[0], tokens_of("llama")[:9]
    arrays, texts = [], []
    for source, target in (((1, 1), (8, 4)), ((8, 4), (1, 1))):
        with engine(folder, *source, kv=kv) as one:
            sequence = one.open_sequence()
            one.prefill(sequence, tokens)
            arrays.append(one.export_kv(sequence))
        with engine(folder, *target, kv=kv) as other:
            sequence = other.import_kv(tokens[:-1], arrays[-1].__class__(
                arrays[-1].kind, *(None if a is None else a[:, :, : len(tokens) - 1]
                                   for a in (arrays[-1].k, arrays[-1].v, arrays[-1].k_scales,
                                             arrays[-1].v_scales)),
            ))  # fmt: skip
            texts.append(other.prefill(sequence, tokens[-1:]).tobytes())
    assert arrays[0].k.tobytes() == arrays[1].k.tobytes()
    assert arrays[0].v.tobytes() == arrays[1].v.tobytes()
    assert texts[0] == texts[1]


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("board", [0, 3, 4, 15])
def test_the_board_that_fails_is_named(board: int, made: Callable[[str], Made]) -> None:
    """Of the first stage, at a stage's end, of the next one, of the last."""
    with open_runner(made("llama")[0], 16, sequences=1, context=64, stages=4) as runner:
        driver = Driver(runner)
        driver.step({0: tokens_of("llama")[:3]})
        assert runner.cluster.emulated is not None
        runner.cluster.emulated.fault(board, abi.FAULT_UNIT_STUCK, abi.UNIT_MPU)
        with pytest.raises(LoraError, match=f"board {board}\\b"):
            driver.step({0: [5]})


@pytest.mark.parametrize("board", [2, 4])
def test_a_stuck_router_is_named(board: int, made: Callable[[str], Made]) -> None:
    """In the middle of a stage's gather, while the other stages wait for rows or votes."""
    with open_runner(made("llama")[0], 8, sequences=1, context=64, stages=2) as runner:
        driver = Driver(runner)
        driver.step({0: tokens_of("llama")[:3]})
        assert runner.cluster.emulated is not None
        runner.cluster.emulated.fault(board, abi.FAULT_UNIT_STUCK, abi.UNIT_ROUTER, 3)
        with pytest.raises(LoraError, match=f"board {board}\\b"):
            driver.step({0: [5]})


@pytest.mark.parametrize("lost", [1, 6])
def test_a_lost_board_leaves_smaller_stages_and_the_text(
    lost: int, made: Callable[[str], Made]
) -> None:
    """The model is planned anew on as many stages of half as many boards."""
    params, texts = SamplingParams(max_tokens=12, temperature=0.9, seed=3, ignore_eos=True), []
    for board in (None, lost):
        with engine(made("llama")[0], 8, 4) as one:
            first = one.generate("a", params).text
            if board is not None:
                assert one.cluster.emulated is not None
                one.cluster.emulated.fault(board, abi.FAULT_BOARD_LOST)
            texts.append((first, one.generate("b", params).text))
            assert (one.cluster.size, len(one.plan.stages)) == ((4, 4) if board else (8, 4))
    assert texts[0] == texts[1]


def test_a_value_that_overflows_is_named_by_its_first_command(tmp_path: Path) -> None:
    """Later stages pass it on; their lists are shorter, so their indices are lower."""
    folder = write_checkpoint(Variant("llama", LAYERS["llama"]), tmp_path)
    spoil(folder, "model.layers.1.mlp.down_proj.weight")
    for greedy in ("boards", "host"):
        with (
            engine(folder, 8, 4, greedy=greedy) as one,
            pytest.raises(ModelError, match="layer 1 matrix down"),
        ):
            one.generate("a", PARAMS)


def spoil(folder: Path, name: str) -> None:
    """Makes a matrix's outputs overflow FP16."""
    from safetensors.numpy import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[name] = np.full_like(tensors[name], 6e4)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("boards", "stages", "board", "kind", "port", "named"),
    [
        (8, 2, 5, abi.FAULT_MISFILE, 0, 5),  # within the second stage
        (8, 2, 3, abi.FAULT_LINK_GARBLE, 1, 3),  # from the first stage to the second
        (4, 4, 1, abi.FAULT_LINK_GARBLE, 1, 1),  # between stages of one board
    ],
)  # fmt: skip
def test_rows_garbled_behind_a_right_crc_are_noticed(
    boards: int, stages: int, board: int, kind: int, port: int, named: int,
    made: Callable[[str], Made],
) -> None:  # fmt: skip
    """A step is redone; where all frames are wrong, the error names the board that sent them."""
    folder = made("llama")[0]
    with engine(folder, boards, stages, recovery="off") as one:
        want = one.generate("a", PARAMS).text
        assert one.cluster.emulated is not None
        one.cluster.emulated.fault(board, kind, port, 0, 1)
        assert one.generate("a", PARAMS).text == want
        assert one.cluster.stats().redone_steps == 1
        one.cluster.emulated.fault(board, abi.FAULT_NONE)
        one.cluster.emulated.fault(board, kind, port, 0, 0)
        with pytest.raises(LinkError, match=f"board {named} .*unit ROUTER: gathered") as found:
            one.generate("a", PARAMS)
        assert found.value.failure is not None
        assert found.value.failure.code == abi.ERR_GATHERED


# --- what firmware refuses ----------------------------------------------------------------------


def register(runner: Runner, place: int, change: Callable[[list[Any]], None]) -> None:
    """Registers the list of the board at `place` again after a change."""
    board = runner.plan.boards[place]
    commands = list(runner.commands[board.board])
    change(commands)
    data = encode(commands, runner.plan, place, LIST_ID)
    control = runner.plan.overlay.control_bank
    runner.cluster.write(board.board, control, board.control.list_offset, data)
    runner.cluster.register_list(board.board, LIST_ID, board.control.list_offset)


def with_span(found: int, span: int) -> Callable[[list[Any]], None]:
    """The last gather of one span gets another."""

    def change(commands: list[Any]) -> None:
        at = [i for i, c in enumerate(commands) if getattr(c, "span", None) == found][-1]
        commands[at] = replace(commands[at], span=span)

    return change


@pytest.mark.parametrize(
    ("place", "found", "span"),
    [
        (0, abi.SPAN_STAGE, abi.SPAN_ALL),  # a layer's gather by all boards
        (0, abi.SPAN_STAGE, abi.SPAN_FROM_PREVIOUS),  # no stage before the first
        (0, abi.SPAN_STAGE, abi.SPAN_TO_NEXT),  # not the last gather
        (2, abi.SPAN_STAGE, abi.SPAN_FROM_PREVIOUS),  # not the first gather
        (2, abi.SPAN_FROM_PREVIOUS, abi.SPAN_TO_NEXT),  # no stage after the last
        (2, abi.SPAN_ALL, abi.SPAN_STAGE),  # votes of a stage alone
        (0, abi.SPAN_TO_NEXT, 4),
    ],
)
def test_firmware_refuses_a_gather_of_other_boards(
    place: int, found: int, span: int, made: Callable[[str], Made]
) -> None:
    with open_runner(made("llama")[0], 4, sequences=1, context=64, stages=2) as runner:
        register(runner, place, lambda commands: None)
        with pytest.raises(CommandError, match="GATHER"):
            register(runner, place, with_span(found, span))
