"""The tensors of a random quantized folder: random integers, with scales that keep activations in
range."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from lora_lab.synth.tensor import DEVIATION, Tensor
from lora_sdk.model.block import describe
from lora_sdk.model.quantization import routes
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.recipe import Recipe

INPUT_SCALE = 4 / 127  # four deviations of a norm's output
INT8_SCALE = DEVIATION / (127 / 3**0.5)  # deviation of uniform integers
INT4_SCALE = DEVIATION / (8 / 3**0.5)
ATTENTION_SCALE = 4 / 127


def quantized_parts(tensor: Tensor, name: str, config: ModelConfig, recipe: Recipe) -> list[Tensor]:
    """The file's tensors that replace `tensor`. `name` is its canonical name (any of several)."""
    if name == "lm_head" and recipe.head == "w8":
        return _int8(tensor)
    rounded = (matmul for matmul in describe(config).matmuls if matmul.layer is not None)
    if routes(name) or not any(name in matmul.tensors for matmul in rounded):
        return [tensor]
    tensor = replace(tensor, shape=(prod(tensor.shape[:-1]), tensor.shape[-1]))
    found = _int4(tensor, recipe) if recipe.four_bit else _int8(tensor)
    if recipe.kv_format.static and name.endswith(".v"):  # also the last name of a fused tensor
        module = tensor.name.removesuffix(".weight").rpartition(".")[0]
        found += [Tensor(f"{module}.{p}_scale", (1,), "F32", ATTENTION_SCALE, 0) for p in "qkv"]
    return found


def _int8(tensor: Tensor) -> list[Tensor]:
    shape = (tensor.shape[0], 1)
    return [
        replace(tensor, kind="I8"),
        _related(tensor, "weight_scale", shape, "F32", INT8_SCALE),
        _related(tensor, "input_scale", (1,), "F32", INPUT_SCALE),
    ]


def _int4(tensor: Tensor, recipe: Recipe) -> list[Tensor]:
    rows, columns = tensor.shape
    groups = columns // recipe.group
    found = [
        _related(tensor, "weight_packed", (rows, -(-columns // 8)), "I32", None),
        _related(tensor, "weight_scale", (rows, groups), "F16", INT4_SCALE),
        replace(_related(tensor, "weight_shape", (2,), "I64", None), values=tensor.shape),
    ]
    if not recipe.symmetric:
        found.append(_related(tensor, "weight_zero_point", (-(-rows // 8), groups), "I32", None))
    if recipe.integer:
        found.append(_related(tensor, "input_scale", (1,), "F32", INPUT_SCALE))
    return found


def _related(
    tensor: Tensor, name: str, shape: tuple[int, ...], kind: str, constant: float | None
) -> Tensor:
    module = tensor.name.removesuffix(".weight")
    return Tensor(f"{module}.{name}", shape, kind, constant, 0)
