"""Quantized models in placement: blocks of several sizes, tables, links, overlays, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import ModelError, PlacementError, RequestError
from lora_host.overlay import load_overlay
from lora_sdk.compile import isa
from lora_sdk.compile.isa import Matrix, encode
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import (
    ActivationScales,
    MatrixFormat,
    Quantization,
    unit_scales,
    with_kv,
)
from lora_sdk.model.spec import ModelConfig
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.placement import make_plan
from tests.unit.plan_rig import GPT2, LLAMA, LLAMA2_7B, OPT_POST, board, overlay, quantized
from tests.unit.test_lower_hazards import GPT2_WIDE, LLAMA_WIDE
from tests.unit.test_plan_placement import ranges

BLOCKS = {"w8a8": 4096, "w4a8": 2368, "w4a16": 2368}


def plan(config: ModelConfig, boards: int = 2, merge: int | None = None, **more) -> Plan:
    chosen = load_overlay(choose_overlay(config, "u280"))
    chosen = replace(chosen, merge=merge or chosen.merge)
    return make_plan(config, chosen, board(), boards, **more)


@pytest.mark.parametrize("merge", [1, 4])
@pytest.mark.parametrize("boards", [1, 2, 4])
@pytest.mark.parametrize("scheme", ["w8a8", "w8a8_heads", "w4a8_order", "w4a16", "w8a8_dynamic"])
def test_nothing_overlaps_and_everything_is_reserved(scheme: str, boards: int, merge: int) -> None:
    found = plan(quantized(GPT2_WIDE, scheme), boards, merge)
    for one in found.boards:
        placed = sorted(ranges(one, found.overlay.control_bank))
        for (bank, _, end, name), (other, start, _, next_name) in pairwise(placed):
            assert bank != other or end <= start, (name, next_name)
        for bank, _, end, name in placed:
            assert end <= one.arenas[bank], name


def test_blocks_have_the_size_of_their_format_and_no_padding_between_them() -> None:
    for scheme, size in BLOCKS.items():
        matrices = plan(quantized(LLAMA_WIDE, scheme)).boards[1].matrices
        for name, placed in matrices.items():
            expected = size if name.startswith("layer.") else 4096
            assert placed.spec.block_bytes == expected
            assert placed.address(0)[1] == placed.weight_line * 64 + (
                placed.first // placed.bank_count * placed.merge * expected
            )
        layers = [m for name, m in matrices.items() if name.startswith("layer.")]
        following = 0
        for placed in layers:
            row_lines = placed.merge * size // 64
            assert placed.first + placed.weight_line // row_lines * placed.bank_count == following
            following += placed.requests


def test_bytes_count_scales_and_zero_points() -> None:
    whole = plan(LLAMA_WIDE, 1).boards[0].matrices
    eight = plan(quantized(LLAMA_WIDE, "w8a8"), 1).boards[0].matrices
    four = plan(quantized(LLAMA_WIDE, "w4a8"), 1).boards[0].matrices
    for name in whole:
        assert eight[name].bytes * 2 == whole[name].bytes
    weights = whole["layer.0.down"].bytes / 2
    assert four["layer.0.down"].bytes == weights * (4 + (16 + 4) / 32) / 8


def test_scales_stand_before_the_bias_in_whole_lines() -> None:
    config = quantized(GPT2, "w8a8")
    found = plan(config)
    tables = found.boards[0].tables
    spec = tables["layer.0.qkv.scales"].spec
    n = found.boards[0].matrices["layer.0.qkv"].n
    assert spec.row_bytes == -(-n * 4 // 64) * 64 + -(-n * 2 // 64) * 64
    assert "layer.0.qkv.bias" not in tables and "lm_head.scales" in tables
    commands = lower(config, found, 0, unit_scales(config))
    for command in (c for c in commands if isinstance(c, Matrix)):
        head = command.what == "matrix lm_head"
        assert bool(command.flags & abi.FLAG_NO_BIAS) == head
        assert command.weight_type == abi.WEIGHT_INT8 and command.bias_bank != abi.NO_BANK


def test_caches_of_int8_hold_more_positions() -> None:
    sizes = {}
    for kv in ("fp16", "int8", "int8-heads"):
        config = replace(LLAMA, quantization=with_kv(Quantization("test"), kv))  # type: ignore[arg-type]
        found = plan(config, context=64)
        sizes[kv] = found.boards[0].kv.block_bytes
        header = isa._header([], found, 0, 0)
        assert header["kv_type"] == {"fp16": 0, "int8": 1, "int8-heads": 2}[kv]
    assert sizes == {"fp16": 16 * 64, "int8": 8 * 64, "int8-heads": 9 * 64}


def test_gathers_are_int8_only_where_nobody_reads_fp16() -> None:
    config = quantized(LLAMA_WIDE, "w8a8")
    config = replace(config, quantization=replace(config.quantization, formats={
        name: form for name, form in config.quantization.formats.items() if ".down" not in name
    }))  # fmt: skip
    sizes = {c.what: c.element_bytes for c in plan(config).collectives}
    assert sizes["layer.1.qkv"] == sizes["layer.1.o"] == sizes["layer.1.up"] == 1
    assert sizes["layer.1.down"] == 2 and sizes["lm_head"] == 1
    slots = plan(config, adapters=AdapterOptions(slots=1, max_rank=8))
    assert {c.element_bytes for c in slots.collectives if "norm" not in c.what} == {2}


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("w8a8", "lora_q_u280"), ("w4a8", "lora_w4a8_u280"), ("w4a16_heads", "lora_w4a8_u280")],
)
def test_the_overlay_follows_the_formats(scheme: str, name: str) -> None:
    config = quantized(LLAMA_WIDE, scheme)
    assert choose_overlay(config, "u280") == name
    with pytest.raises(PlacementError, match=f"which overlay lora_f_u280 .* take overlay {name}"):
        make_plan(config, overlay(), board(), 2)


def test_fp16_too_needs_an_overlay_that_computes_it() -> None:
    integers = replace(overlay(), weights=("int8",))
    with pytest.raises(PlacementError, match="is fp16, which overlay lora_f_u280 does not compute"):
        make_plan(LLAMA, integers, board(), 2)


def test_fp16_and_w4a16_run_on_lora_f() -> None:
    assert choose_overlay(LLAMA, "v80") == "lora_f_v80"
    config = quantized(LLAMA_WIDE, "w4a16")
    formats = {n: f for n, f in config.quantization.formats.items() if n != "lm_head"}
    config = replace(config, quantization=Quantization("w4a16", formats, "int8-heads"))
    assert choose_overlay(config, "v80") == "lora_f_v80"


def with_format(name: str, form: MatrixFormat, config: ModelConfig = LLAMA) -> ModelConfig:
    return replace(config, quantization=Quantization("test", {name: form}))


REFUSED = {
    "a K that is no multiple of the group": (
        with_format("layer.2.o", MatrixFormat("w4a8", 64)),
        r"layer\.2\.o: K is 144, not a multiple of its group of 64",
    ),
    "parts of one product in two formats": (
        with_format("layer.1.k", MatrixFormat("int8")),
        r"layer\.1\.k: int8, but layer\.1\.q, .* is fp16",
    ),
    "a matrix that is not there": (
        with_format("layer.3.o", MatrixFormat("int8")),
        r"layer\.3\.o: has a format \(int8\), but the model has no such matrix",
    ),
    "an odd head in an INT8 cache": (
        replace(
            OPT_POST, hidden=135, heads=9, kv_heads=9, head_dim=15,
            quantization=Quantization("test", kv="int8"),
        ),
        "head_dim is 15; KV caches of INT8 need an even one",
    ),
    "sums beyond INT32": (
        with_format("layer.0.down", MatrixFormat("int8"), replace(LLAMA, ffn=140000)),
        r"layer\.0\.down: K is 140000; INT32 sums are exact up to 131071",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(config: ModelConfig, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        plan(config)


def test_int8_attention_ends_where_its_sums_do() -> None:
    config = replace(LLAMA, positions=200000, quantization=Quantization("test", kv="int8"))
    whole_tiles = 133120  # of the 133,144 positions that the sums hold
    assert abi.MAX_INT8_POSITIONS - whole_tiles in range(abi.TILE_POSITIONS)
    assert plan(config, 1, context=1000).context_limit <= whole_tiles
    with pytest.raises(RequestError, match=f"exact up to {whole_tiles} positions"):
        plan(config, 1, context=whole_tiles + 1)


def test_missing_and_impossible_scales_are_named() -> None:
    config = quantized(LLAMA_WIDE, "w8a8")
    found, good = plan(config), unit_scales(config)
    for inputs, message in (
        ({}, "layer.0.q: scale of its input is missing"),
        ({**good.inputs, "layer.0.k": np.float32(2)}, "layer.0.k: .* is 2.0, that of layer.0.q"),
        ({**good.inputs, "layer.1.o": np.float32(0)}, "layer.1.o: .* is 0.0; expected a positive"),
        ({**good.inputs, "lm_head": np.float32("inf")}, "lm_head: .* expected a positive finite"),
    ):
        with pytest.raises(ModelError, match=message):
            lower(config, found, 0, ActivationScales(inputs, good.attention))
    with pytest.raises(ModelError, match="layer 0: no scales of q, k and v"):
        lower(config, found, 0, ActivationScales(good.inputs, ()))


def test_large_models_lists_fit_their_place() -> None:
    for precision, boards in (("w8a8", 1), ("w4a8", 8)):
        config = quantized_as(LLAMA2_7B, precision)
        found = plan(config, boards)
        commands = lower(config, found, boards - 1, unit_scales(config))
        assert encode(commands, found, boards - 1, 0)
        assert not found.boards[0].spilled
