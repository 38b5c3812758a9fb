"""What the lists contain, and their bytes."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import PlacementError
from lora_host.overlay import load_overlay
from lora_sdk.compile import isa
from lora_sdk.compile.isa import Attention, Command, Gather, Matrix, MoveRows, Vector, encode
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.placement import make_plan
from tests.unit.plan_rig import GPT2, LLAMA, LLAMA2_7B, MODELS, OPT_POST, board, overlay

HEADER = 256


def plan_of(config, boards: int, taps: tuple[int, ...] = ()) -> Plan:
    return make_plan(config, overlay(), board(), boards, hidden_taps=taps)


def names(commands: list[Command], layer: int) -> list[str]:
    return [command.what for command in commands if command.layer == layer]


LLAMA_LAYER = [
    "rms norm sums", "gather layer.1.attn_norm", "rms norm", "gather layer.1.qkv", "matrix qkv",
    "rope", "kv store", "attention", "gather layer.1.o", "matrix o", "residual",
    "rms norm sums", "gather layer.1.mlp_norm", "rms norm", "gather layer.1.up", "matrix up",
    "activation silu", "gather layer.1.down", "matrix down", "residual",
]  # fmt: skip
POST_LAYER = [
    "gather layer.1.qkv", "matrix qkv", "kv store", "attention", "gather layer.1.o", "matrix o",
    "residual", "layer norm sums", "gather layer.1.attn_norm", "layer norm",
    "gather layer.1.up", "matrix up", "activation relu", "gather layer.1.down", "matrix down",
    "residual", "layer norm sums", "gather layer.1.mlp_norm", "layer norm",
]  # fmt: skip
OPT_FRAME = [
    "kv commit", "embed", "gather project_in", "matrix project_in", "add position",
    "gather project_out", "matrix project_out", "gather lm_head", "matrix lm_head", "argmax",
    "ballot", "own vote", "gather votes", "votes", "end",
]  # fmt: skip


def test_a_blocks_commands_in_order() -> None:
    assert names(lower(LLAMA, plan_of(LLAMA, 4), 2), 1) == LLAMA_LAYER
    post = lower(OPT_POST, plan_of(OPT_POST, 2), 0)
    assert names(post, 1) == POST_LAYER
    assert names(post, isa.NO_LAYER) == OPT_FRAME


def test_channels_multiply_and_rotate_q_beside_the_store_of_k_and_v() -> None:
    """Attention waits for both: they raise one counter."""
    columns = load_overlay("lora_channels_u280")
    config = quantized_as(LLAMA2_7B, columns.precision)
    assert config.quantization is not None
    config = replace(config, quantization=replace(config.quantization, kv="int8"))
    plan = make_plan(config, columns, board(), 1)
    found = lower(config, plan, 0, unit_scales(config))
    first = names(found, 1).index("matrix kv")
    assert names(found, 1)[first : first + 9] == [
        "matrix kv", "matrix q", "rope", "quantize k", "quantize v", "kv store", "rope",
        "quantize q", "attention",
    ]  # fmt: skip
    layer = [command for command in found if command.layer == 1]
    kv, q, rope_k, _, v, store, rope_q, quantized, attention = layer[first : first + 9]
    assert store.wait_counter == v.signal_counter
    assert store.signal_counter == quantized.signal_counter == attention.wait_counter
    assert attention.wait_value == 2
    assert rope_k.wait_counter == kv.signal_counter and rope_q.wait_counter == q.signal_counter
    assert isinstance(rope_k, Vector) and isinstance(rope_q, Vector)
    assert rope_k.columns == rope_q.columns == 4096 and rope_k.x_offset - rope_q.x_offset == 8192
    assert isinstance(kv, Matrix) and isinstance(q, Matrix)
    assert (kv.n, q.n, kv.y_offset - q.y_offset) == (8192, 4096, 8192)
    assert (kv.first - q.first, kv.bias_line - q.bias_line) == (128, 256)  # tiles, lines of scales


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_one_board_has_the_same_commands_without_gathers(config) -> None:
    single = lower(config, plan_of(config, 1), 0)
    first = lower(config, plan_of(config, 2), 0)
    assert not any(command.unit == abi.UNIT_ROUTER for command in map(fields, single))
    alone = [c for c in first if not (isinstance(c, Gather) or c.flags & abi.FLAG_VOTES)]
    assert [str(c) for c in single] == [str(c) for c in alone]


def fields(command: Command) -> np.void:
    return np.frombuffer(isa.record(command), abi.dtype(command.STRUCT))[0].view(np.recarray)


@pytest.mark.parametrize("boards", [2, 4, 8])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_gathers_are_the_plans_collectives_on_every_board(config, boards: int) -> None:
    plan = plan_of(config, boards)
    for rank in range(boards):
        *gathers, votes = [c for c in lower(config, plan, rank) if isinstance(c, Gather)]
        assert votes.flags == abi.FLAG_VOTES and votes.collective == len(gathers)
        assert [g.collective for g in gathers] == list(range(len(plan.collectives)))
        for gather, collective in zip(gathers, plan.collectives, strict=True):
            assert gather.what == f"gather {collective.what}"
            for name in ("columns", "share_unit", "segment_unit", "element_bytes"):
                assert getattr(gather, name) == getattr(collective, name)
            assert bool(gather.flags & abi.FLAG_SELECTED) == collective.selected


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_every_counter_is_signalled_once_and_waits_follow_their_signals(config) -> None:
    for command_list in (lower(config, plan_of(config, n), n - 1) for n in (1, 4)):
        signalled: dict[int, int] = {}
        for command in command_list:
            if command.wait_counter != abi.NO_COUNTER:
                wide = command.flags & abi.FLAG_WAIT_SEGMENTS
                assert signalled[command.wait_counter] == (8 if wide else 1)
            if command.signal_counter != abi.NO_COUNTER:
                wide = command.flags & abi.FLAG_SIGNAL_SEGMENTS
                width = 8 if wide else 1
                for counter in range(command.signal_counter, command.signal_counter + width):
                    assert counter not in signalled
                    signalled[counter] = width
        assert sorted(signalled) == list(range(isa.counter_count(command_list)))


def test_attention_signals_heads_and_its_gather_waits_for_all() -> None:
    commands = lower(LLAMA, plan_of(LLAMA, 4), 3)
    place = next(i for i, c in enumerate(commands) if isinstance(c, Attention))
    attention, gather = commands[place], commands[place + 1]
    assert isinstance(attention, Attention) and isinstance(gather, Gather)
    assert attention.flags == abi.FLAG_SIGNAL_HEADS and attention.q_heads == 3
    assert (gather.wait_counter, gather.wait_value) == (attention.signal_counter, 3)
    assert (gather.share_unit, gather.segment_unit) == (LLAMA.head_dim, 32)
    assert (attention.q_first, attention.kv_first, attention.group) == (6, 2, 3)


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_matrices_stand_where_the_plan_placed_them(config) -> None:
    plan = plan_of(config, 4)
    for found in plan.boards:
        matrices = [c for c in lower(config, plan, found.rank) if isinstance(c, Matrix)]
        assert len(matrices) == len(found.matrices)
        for command, placed in zip(matrices, found.matrices.values(), strict=True):
            assert command.what == f"matrix {placed.name.split('.')[-1]}"
            for name in ("k", "n", "bank_first", "bank_count", "merge", "first", "weight_line"):
                assert getattr(command, name) == getattr(placed, name)
            bias = found.tables.get(f"{placed.name}.bias")
            expected = (bias.bank, bias.line) if bias else (abi.NO_BANK, 0)
            assert (command.bias_bank, command.bias_line) == expected


PARALLEL = {f"parallel_{n}": replace(MODELS[n], residual="parallel") for n in ("llama", "gpt2")}


@pytest.mark.parametrize("config", [*MODELS.values(), *PARALLEL.values()], ids=[*MODELS, *PARALLEL])
def test_what_follows_the_last_stored_k_and_v_works_on_selected_rows(config) -> None:
    commands = lower(config, plan_of(config, 2), 1)
    *_, stored = (at for at, command in enumerate(commands) if command.what == "kv store")
    for at, command in enumerate(commands):
        works = isinstance(command, Attention | Matrix | Vector | Gather | MoveRows)
        selected = at > stored and works and not command.flags & abi.FLAG_VOTES
        assert bool(command.flags & abi.FLAG_SELECTED) == selected, command
    packs = [c.what for c in commands if c.flags & abi.FLAG_PACK]
    shared = ["pack input"] if config.residual == "parallel" else []
    assert packs == ["pack queries", "pack selected rows", *shared]


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_only_the_head_does_where_the_last_output_is_tapped(config) -> None:
    for command in lower(config, plan_of(config, 2, (config.layers,)), 1):
        head = command.layer == isa.NO_LAYER and command.what not in (*OPT_FRAME[:5], "hidden tap")
        head = head and not command.flags & abi.FLAG_VOTES
        works = isinstance(command, Matrix | Vector | Gather | MoveRows)
        assert bool(command.flags & abi.FLAG_SELECTED) == (head and works), command


def test_logits_and_argmax_lie_in_the_results() -> None:
    plan = plan_of(LLAMA, 4)
    for found in plan.boards:
        head = [c for c in lower(LLAMA, plan, found.rank) if "lm_head" in c.what][-1]
        assert isinstance(head, Matrix)
        assert (head.y_bank, head.y_type) == (plan.overlay.control_bank, abi.FP32)
        start, end = found.control.results_offset, found.control.results_bytes
        last = head.y_offset + (plan.row_limit - 1) * head.y_stride + head.n * 4
        assert start <= head.y_offset and last <= start + end


def test_tapped_layers_are_copied_before_they_run() -> None:
    taps = [c for c in lower(GPT2, plan_of(GPT2, 2, (3, 1)), 0) if c.what == "hidden tap"]
    assert [tap.layer for tap in taps] == [1, isa.NO_LAYER]
    control = plan_of(GPT2, 2, (3, 1)).boards[0].control
    offsets = [tap.y_offset for tap in taps if isinstance(tap, MoveRows)]
    assert offsets == [control.hidden_offset + control.hidden_tap_bytes, control.hidden_offset]


def test_records_carry_the_fields_of_the_abi() -> None:
    plan = plan_of(LLAMA, 4)
    commands = lower(LLAMA, plan, 1)
    data = encode(commands, plan, 1, 0)
    assert len(data) == HEADER + 64 * len(commands)
    for index, command in enumerate(commands):
        raw = data[HEADER + 64 * index :][:64]
        stored = np.frombuffer(raw, abi.dtype(command.STRUCT))[0]
        assert (stored["opcode"], stored["unit"]) == (command.OPCODE, command.UNIT)
        for name in stored.dtype.names:
            if not name.startswith("reserved") and name not in ("opcode", "unit", "body"):
                assert stored[name] == getattr(command, name), (command, name)


def test_the_header_describes_the_board_and_seals_the_list() -> None:
    plan = plan_of(LLAMA, 4)
    commands = lower(LLAMA, plan, 1)
    data = bytearray(encode(commands, plan, 1, 1))
    header = np.frombuffer(bytes(data[:HEADER]), abi.dtype("list"))[0]
    kv = plan.boards[1].kv
    expected = {
        "size": 256, "abi": abi.ABI_NUMBER, "list_id": 1, "command_count": len(commands),
        "rank": 1, "boards": 4, "ring": 1, "port_next": 1, "port_previous": 0, "max_rows": 64,
        "page_count": plan.page_count, "positions": plan.context, "kv_heads": 2, "head_dim": 16,
        "kv_line": kv.line, "kv_bank_count": 32, "embed_columns": LLAMA.embed_dim, "taps": 0,
    }  # fmt: skip
    assert {name: int(header[name]) for name in expected} == expected
    place = abi.dtype("list").fields["crc"][1]
    data[place : place + 4] = bytes(4)
    assert int(header["crc"]) == zlib.crc32(data)


def test_a_value_without_room_is_an_error_and_no_wrap() -> None:
    command = Gather(
        what="gather", offset=0, stride=64, columns=32, share_unit=1 << 16, segment_unit=32,
        element_bytes=2, collective=0,
    )  # fmt: skip
    with pytest.raises(OverflowError, match="gather: share_unit is 65536, expected at most 65535"):
        isa.record(command)
    with pytest.raises(OverflowError, match="offset is -1"):
        isa.record(replace(command, share_unit=32, offset=-1))


def test_a_list_longer_than_its_place_is_refused() -> None:
    plan = plan_of(LLAMA, 2)
    commands = lower(LLAMA, plan, 0)
    with pytest.raises(PlacementError, match="command list of board 0 takes"):
        encode(commands * 3, plan, 0, 0)


def test_large_models_lists_fit_their_place_and_counters() -> None:
    deep = replace(LLAMA2_7B, layers=126, hidden=8192, heads=64, kv_heads=8, ffn=1024)
    plan = make_plan(deep, overlay(), board(8 << 30, 64 << 30), 8, hidden_taps=(0, 2, 9, 126))
    commands = lower(deep, plan, 7)
    assert len(encode(commands, plan, 7, 0)) <= plan.boards[7].control.list_bytes
    assert isa.counter_count(commands) <= abi.MAX_COUNTERS
