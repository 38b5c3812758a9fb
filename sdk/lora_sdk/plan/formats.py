"""The format of each matmul of a model, and the checks between formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host.errors import ModelError
from lora_sdk.model.block import Block, describe
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.operations import Matmul
from lora_sdk.model.quantization import FP16, MatrixFormat, Quantization, format_of, kv_of
from lora_sdk.model.weight_formats import INT8, of_precision

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def matmul_format(config: ModelConfig, matmul: Matmul) -> MatrixFormat:
    """The one format of a matmul's matrices."""
    return FP16 if config.quantization is None else format_of(config, matmul.tensors)


def act_order(config: ModelConfig, matmul: Matmul) -> bool:
    """Whether the matmul's inputs have to be permuted."""
    found = config.quantization
    return found is not None and matmul.tensors[0] in found.act_order


def check_matmuls(config: ModelConfig) -> None:
    """ModelError names a matrix whose format is not possible: K is no multiple of the group, parts
    of one matmul differ, a sum may overflow INT32, or matmuls read one gathered input in INT8 and
    in FP16."""
    found = config.quantization
    if found is None:
        return
    block = describe(config)
    known: dict[str, tuple[int, ...]] = {}
    for matmul in block.matmuls:
        matmul_format(config, matmul)
        known.update((name, (matmul.k,)) for name in matmul.tensors)
    found.check(known)
    _check_shared(config, block)
    if kv_of(config).quantized and config.head_dim % 2:
        raise ModelError(f"head_dim is {config.head_dim}; KV caches of INT8 need an even one")


def _check_shared(config: ModelConfig, block: Block) -> None:
    for first, *others in block.inputs.values():
        if first.routes:  # in FP16, and each other reader quantizes the row
            continue
        for other in others:
            one, two = matmul_format(config, first), matmul_format(config, other)
            if (one.integer, one.dynamic) != (two.integer, two.dynamic):
                raise ModelError(
                    f"{other.name}: is {two}, but {first.name}, which reads the same row, is "
                    f"{one}; expected INT8 inputs of both or of neither, with the same scales"
                )


def quantized_as(config: ModelConfig, precision: str) -> ModelConfig:
    """The model with layers' matrices, lm_head and KV cache in the formats of an overlay of this
    precision: "w8a8" with INT8 attention, or "w4a8" with the max group that divides K, and K and V
    in INT8 by head."""
    weights = of_precision(precision)
    formats: dict[str, MatrixFormat] = {"lm_head": MatrixFormat(INT8.name)}
    for matmul in describe(config).matmuls:
        if matmul.layer is None or matmul.routes:
            continue
        group = weights.fitting_group(matmul.k)
        fits = group in weights.groups
        chosen = MatrixFormat(weights.name, group) if fits else MatrixFormat(INT8.name)
        formats.update(dict.fromkeys(matmul.tensors, chosen))
    kv: KvKind = "int8" if weights is INT8 else "int8-heads"
    return replace(config, quantization=Quantization(precision, formats, kv))
