"""The description of a model's operations: every consumer has a row for every kind, a list never
has more commands than the plan counts, and parallel residuals are lowered without hazards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_lab.timing import shape_ops, wide_ops
from lora_sdk.compile import operations as compiled
from lora_sdk.compile.isa import NO_LAYER
from lora_sdk.compile.lower import lower
from lora_sdk.model import block
from lora_sdk.model import operations as ops
from lora_sdk.model.block import describe
from lora_sdk.model.operations import KINDS, Operation
from lora_sdk.model.quantization import MatrixFormat, Quantization, unit_scales
from lora_sdk.model.stage import describe_stage
from lora_sdk.plan import collectives, control, onchip, tensors
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.formats import check_matmuls
from lora_sdk.quant import arithmetic, calibrate
from tests.unit.plan_rig import (
    EXPERTS,
    EXPERTS_GATED,
    EXPERTS_NARROW,
    EXPERTS_SHARED,
    EXPERTS_SIGMOID,
    EXPERTS_WIDE,
    GPT2,
    LATENT,
    LATENT_NARROW,
    LATENT_WIDE,
    LLAMA,
    MODELS,
    NARROW,
    OPT_POST,
    quantized,
)
from tests.unit.test_lower_hazards import LLAMA_WIDE, hazards, lists_of

TABLES: dict[str, Any] = {
    "compile.operations": compiled.COMMANDS,
    "plan.collectives": collectives.GATHERS,
    "plan.tensors": tensors.TABLES,
    "plan.onchip": onchip.COPIES,
    "plan.control": control.MAX_COMMANDS,
    "timing.shape_ops": shape_ops.OPERATORS,
    "timing.wide_ops": wide_ops.OPERATORS,
    "quant.arithmetic": arithmetic.FLOATS,
    "quant.calibrate": calibrate.SMOOTHED,
}
PARALLEL = {
    "parallel_llama": replace(LLAMA, residual="parallel"),
    "parallel_llama_two": replace(LLAMA, residual="parallel_two_norms"),
    "parallel_gpt2": replace(GPT2, residual="parallel", head_bias=True),
    "parallel_gpt2_two": replace(GPT2, residual="parallel_two_norms"),
    "parallel_narrow": replace(NARROW, residual="parallel"),
    "parallel_narrow_two": replace(NARROW, residual="parallel_two_norms"),
    "parallel_narrow_wide_ffn": replace(NARROW, residual="parallel", ffn=384),
}


MIXTURES = {
    "experts": EXPERTS,
    "experts_narrow": EXPERTS_NARROW,
    "experts_gated": EXPERTS_GATED,
    "experts_shared": EXPERTS_SHARED,
    "experts_sigmoid": EXPERTS_SIGMOID,
    "latent": LATENT,
    "latent_narrow": LATENT_NARROW,
    "latent_wide": LATENT_WIDE,
}


def test_every_class_of_an_operation_is_a_kind() -> None:
    found = {kind for kind in classes(Operation) if not issubclass(kind, ops.Elementwise)}
    assert set(KINDS) == {*found, ops.Elementwise}


def classes(base: type[Operation]) -> Iterator[type[Operation]]:
    for kind in base.__subclasses__():
        yield kind
        yield from classes(kind)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_row_for_every_kind(name: str) -> None:
    missing = {kind.__name__ for kind in KINDS} - {kind.__name__ for kind in TABLES[name]}
    assert not missing, f"{name} has no row for {', '.join(sorted(missing))}"
    assert set(TABLES[name]) == set(KINDS)


def test_a_kind_without_a_row_is_named() -> None:
    with pytest.raises(TypeError, match="operation Rope: no row"):
        ops.row({ops.Norm: 1}, ops.Rope(target=block.QKV))


def test_the_order_of_each_kind_of_layer() -> None:
    def order(config) -> list[str]:
        operations = describe(config).layers[0]
        return [getattr(found, "name", type(found).__name__).split(".")[-1] for found in operations]

    attention = ["qkv", "Rope", "StoreKv", "Attend", "o"]
    mlp = ["up", "Activate", "down"]
    add = "AddResidual"
    assert order(LLAMA) == ["attn_norm", *attention, add, "mlp_norm", *mlp, add]
    plain = [name for name in attention if name != "Rope"]
    assert order(OPT_POST) == [*plain, add, "attn_norm", *mlp, add, "mlp_norm"]
    assert order(PARALLEL["parallel_llama"]) == ["attn_norm", *attention, add, *mlp, add]
    row = order(replace(LLAMA, head_norms="row", branch_norms="alone"))
    normed = ["qkv", "q_norm", "k_norm", *attention[1:], "attn_post_norm", add]
    assert row == [*normed, *mlp, "mlp_post_norm", add]
    both = order(replace(LLAMA, branch_norms="both", unrotated=frozenset([0])))
    assert both == ["attn_norm", *plain, "attn_post_norm", add, "mlp_norm", *mlp,
                    "mlp_post_norm", add]  # fmt: skip
    two = ["attn_norm", *attention, "mlp_norm", add, *mlp, add]
    assert order(PARALLEL["parallel_llama_two"]) == two


def test_layers_of_a_mixture_differ_in_kind() -> None:
    kinds = [[type(one).__name__ for one in layer] for layer in describe(EXPERTS).layers]
    assert kinds[0] == kinds[2] and "Route" not in kinds[1]
    mlp = ["Matmul", "Route", "ExpertMatmul", "Activate", "ExpertMatmul", "AddResidual"]
    assert kinds[0][-6:] == mlp
    names = [one.name for one in describe(EXPERTS).adapted if one.layer == 0]
    assert names == ["layer.0.qkv", "layer.0.o"]  # adapters change neither routers nor experts


def test_a_shared_expert_is_added_with_or_without_a_gate() -> None:
    kinds = [type(one).__name__ for one in describe(EXPERTS_GATED).layers[0]]
    shared = ["Matmul", "Activate", "Matmul"]
    assert kinds[-5:] == [*shared, "AddGated", "AddResidual"]
    kinds = [type(one).__name__ for one in describe(EXPERTS_SHARED).layers[0]]
    assert kinds[-5:] == [*shared, "AddResidual", "AddResidual"]


def test_latent_attention_makes_q_k_and_v_of_latents() -> None:
    def order(config) -> list[str]:
        operations = describe(config).layers[0]
        found = [getattr(one, "name", type(one).__name__).split(".")[-1] for one in operations]
        return found[1 : found.index("o") + 1]

    joined = ["kv_a_norm", "kv", "JoinHeads", "JoinHeads", "Rope", "StoreKv", "Attend"]
    q_a = ["kv_a", "q_a", "q_a_norm", "q"]
    assert order(LATENT) == [*q_a, *joined, "JoinHeads", "o"]  # of which o reads no padding
    assert order(LATENT_NARROW) == ["kv_a", "q", *joined, "o"]
    matmuls = {one.short: one for one in describe(LATENT).matmuls if one.layer == 0}
    assert (matmuls["o"].k, matmuls["kv"].k, matmuls["q"].k) == (9 * 12, 104, 72)
    assert matmuls["q_a"].input_of == "layer.0.kv_a" and matmuls["q"].gather


def test_experts_are_refused_where_nothing_computes_them() -> None:
    for change in ({"mlp_bias": True}, {"activation": "gelu_tanh"}, {"residual": "parallel"}):
        with pytest.raises(ModelError, match="experts with biases"):
            describe(replace(EXPERTS, **change))
    eight = quantized(EXPERTS_WIDE, "w8a8")
    assert eight.quantization is not None
    describe(eight)
    formats = {**eight.quantization.formats, "layer.0.router": MatrixFormat("int8")}
    with pytest.raises(ModelError, match=r"layer\.0\.shared_gate: fp16, but layer\.0\.router"):
        describe(replace(eight, quantization=replace(eight.quantization, formats=formats)))
    formats["layer.0.shared_gate"] = MatrixFormat("int8")
    with pytest.raises(ModelError, match=r"layer\.0\.router: is int8; expected a router in FP16"):
        describe(replace(eight, quantization=replace(eight.quantization, formats=formats)))
    with pytest.raises(
        ModelError, match=r"layer\.0\.expert\.0\.up: experts with their inputs in an"
    ):
        describe(quantized(EXPERTS_WIDE, "w4a8_order"))
    formats = {**eight.quantization.formats, "layer.2.expert.3.down": MatrixFormat("fp16")}
    other = replace(eight, quantization=replace(eight.quantization, formats=formats))
    with pytest.raises(
        ModelError, match=r"layer\.2\.expert\.3\.down: fp16, but layer\.2\.expert\.0"
    ):
        check_matmuls(other)


def test_a_parallel_residual_behind_one_norm_gathers_its_input_once() -> None:
    found = [c.what for c in collectives.collectives(PARALLEL["parallel_llama"]) if ".1." in c.what]
    assert found == [f"layer.1.{name}" for name in ("attn_norm", "qkv", "o", "down")]


def test_norms_behind_the_sums_go_with_no_parallel_residual() -> None:
    with pytest.raises(ModelError, match="parallel residual"):
        describe(replace(OPT_POST, residual="parallel"))


def test_matmuls_of_one_gathered_row_have_inputs_of_one_kind() -> None:
    whole = quantized(replace(LLAMA_WIDE, residual="parallel"), "w8a8")
    check_matmuls(whole)
    assert whole.quantization is not None
    formats = {n: f for n, f in whole.quantization.formats.items() if n[-2:] not in ("up", "te")}
    with pytest.raises(ModelError, match=r"layer\.0\.up: is fp16, but layer\.0\.qkv, which reads"):
        check_matmuls(replace(whole, quantization=Quantization("mixed", formats)))


@pytest.mark.parametrize("mode", [None, "auto", "s"])
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("config", PARALLEL.values(), ids=PARALLEL)
def test_no_command_of_a_parallel_layer_overwrites_what_another_needs(
    config, boards: int, mode: str | None
) -> None:
    options = None if mode is None else AdapterOptions(slots=2, max_rank=8, mode=mode)
    _, lists = lists_of(config, boards, adapters=options)
    assert hazards(lists) == []


@pytest.mark.parametrize("slots", [0, 2])
@pytest.mark.parametrize(
    "scheme", ["w8a8", "w8a8_heads", "w4a8_order", "w4a16_order", "w8a8_dynamic"]
)
def test_nor_of_a_quantized_one(scheme: str, slots: int) -> None:
    for residual in ("parallel", "parallel_two_norms"):
        config = quantized(replace(LLAMA_WIDE, residual=residual), scheme)
        options = AdapterOptions(slots=slots, max_rank=8)
        _, lists = lists_of(config, 4, adapters=options)
        assert hazards(lists) == []


CASES = [
    *((name, scheme)
      for name in (*MODELS, *PARALLEL)
      for scheme in (None, "w8a8", "w4a8_order", "w8a8_heads", "w4a8_order_dynamic")),
    *((name, None) for name in MIXTURES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_a_list_has_no_more_commands_than_the_plan_counts(name: str, scheme: str | None) -> None:
    config = {**MODELS, **PARALLEL, **MIXTURES}[name]
    if scheme is not None:
        if scheme.startswith("w4"):
            config = replace(LLAMA_WIDE, residual=config.residual)
        config = quantized(config, scheme)
    _, lists = lists_of(config, 4, taps=(), final=False)
    described = describe_stage(config, range(config.layers))
    counted = {None: described.before + described.after}
    counted |= dict(enumerate(described.layers))
    for commands in lists:
        found = Counter(c.layer if c.layer != NO_LAYER else None for c in commands)
        for layer, operations in counted.items():
            rows = [ops.row(control.MAX_COMMANDS, operation) for operation in operations]
            most = sum(plain + (more if scheme else 0) for plain, more in rows)
            assert found[layer] <= most + (control.OUTSIDE_COMMANDS if layer is None else 0)


def test_matmuls_of_one_gathered_row_need_one_scale() -> None:
    config = quantized(replace(LLAMA_WIDE, residual="parallel"), "w8a8")
    plan, _ = lists_of(config, 2)
    scales = unit_scales(config)
    other = {**scales.inputs, "layer.1.gate": np.float32(2)}
    with pytest.raises(ModelError, match=r"layer\.1\.gate: scale of its input is 2.0"):
        lower(config, plan, 0, replace(scales, inputs=other))
