"""How a model's matrices and its KV cache are quantized, and the scales that a checkpoint provides
(docs/numbers.md, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.model.kv_formats import KvFormat, KvKind, kv_format
from lora_sdk.model.weight_formats import GROUPS, WeightFormat, weight_format


@dataclass(frozen=True)
class MatrixFormat:
    """`kind` of a matrix's weights and activations, the name of a weight format, and its groups of
    `group` weights along K (None where it has none). `dynamic`: INT8 inputs have a scale per row,
    which boards compute. ModelError: an unknown kind, a group that no weight block holds, or a
    dynamic scale of inputs that are not INT8."""

    kind: str
    group: int | None = None
    dynamic: bool = False

    def __post_init__(self) -> None:
        if self.dynamic and not self.integer:
            raise ModelError(f"dynamic scales of {self.kind} inputs; expected INT8 inputs")
        if self.group not in self.weights.groups:
            expected = " or ".join(map(str, self.weights.groups))
            raise ModelError(f"group {self.group} of {self.kind} weights; expected {expected}")

    @property
    def weights(self) -> WeightFormat:
        """What is known of the weight format."""
        return weight_format(self.kind)

    @property
    def four_bit(self) -> bool:
        """Whether weights have 4 bits, with a scale and a zero point per group."""
        return self.weights.bits == 4 and self.group is not None

    @property
    def integer(self) -> bool:
        """Whether activations are quantized to INT8 before the matmul."""
        return self.weights.integer

    @property
    def static(self) -> bool:
        """Whether INT8 inputs have a scale in the checkpoint."""
        return self.integer and not self.dynamic

    @property
    def weight_type(self) -> int:
        """A matrix command's weight_type."""
        return self.weights.weight_type(self.group)

    @property
    def block_bytes(self) -> int:
        """Bytes of one weight block of 128 x 32, scales and zero points included."""
        return self.weights.block_bytes(self.group)

    @property
    def metadata_bytes(self) -> int:
        """Bytes of a block after its values."""
        return self.weights.metadata_bytes(self.group)

    def bytes(self, k: int, n: int) -> int:
        """Bytes of a matrix [k, n] itself, without padding: weights, scales and zero points."""
        return self.weights.matrix_bytes(self.group, k, n)

    def check(self, name: str, k: int) -> None:
        """ModelError names a matrix of K `k` that cannot have this format: no whole groups, or
        sums of INT8 that an INT32 does not hold."""
        if self.group is not None and k % self.group:
            raise ModelError(
                f"{name}: K is {k}, not a multiple of its group of {self.group}; expected a "
                "group that divides it"
            )
        block = self.weights.gguf
        if block is not None and k % block.weights:
            raise ModelError(f"{name}: K is {k}; blocks of {self.kind} hold {block.weights} each")
        if self.integer and k > abi.MAX_INT8_K:
            raise ModelError(f"{name}: K is {k}; INT32 sums are exact up to {abi.MAX_INT8_K}")

    def __str__(self) -> str:
        groups = "" if self.group is None else f" in groups of {self.group}"
        return f"{self.kind}{groups}{' with dynamic inputs' if self.dynamic else ''}"


FP16 = MatrixFormat("fp16")


@dataclass(frozen=True)
class Quantization:
    """`formats` by canonical matrix name (`layer.I.q`, ..., `lm_head`); what it does not name is
    FP16. `kv`: how K and V are stored. `act_order`: names of the 4-bit matrices whose inputs have
    to be permuted first (`Checkpoint.permutation`). `tokens`: the token table, FP16 or a block of
    GGUF files. `scheme` is for messages. `rotated`: the weights are of a rotated residual stream
    and rotated heads, which states and adapters of the plain model do not fit."""

    scheme: str
    formats: Mapping[str, MatrixFormat] = field(default_factory=dict)
    kv: KvKind = "fp16"
    act_order: frozenset[str] = frozenset()
    tokens: MatrixFormat = FP16
    rotated: bool = False

    def __post_init__(self) -> None:
        kv_format(self.kv)
        object.__setattr__(self, "formats", dict(self.formats))

    def __hash__(self) -> int:
        formats = frozenset(self.formats.items())
        return hash((self.scheme, formats, self.kv, self.act_order, self.tokens, self.rotated))

    def format(self, name: str) -> MatrixFormat:
        """The format of one matrix of the checkpoint."""
        return self.formats.get(name, FP16)

    def fused(self, names: Iterable[str]) -> MatrixFormat:
        """The one format of matrices that are columns of one matmul (q|k|v, gate|up). ModelError
        names two that differ, in format or in act-order."""
        first, *others = list(names)
        for name in others:
            if self.format(name) != self.format(first):
                raise ModelError(
                    f"{name}: {self.format(name)}, but {first}, a part of the same matmul, is "
                    f"{self.format(first)}; expected the same format"
                )
            if (name in self.act_order) != (first in self.act_order):
                raise ModelError(
                    f"{name} and {first} are parts of one matmul, but only one of them has its "
                    "inputs in an order of its own (act-order); expected both or neither"
                )
        return self.format(first)

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """ModelError names a matrix whose K (`shapes` gives [K, N] by canonical name) its format
        cannot have, or a name that is not in the model."""
        for name, chosen in self.formats.items():
            if name not in shapes:
                raise ModelError(
                    f"{name}: has a format ({chosen}), but the model has no such matrix"
                )
            chosen.check(name, shapes[name][0])

    @property
    def all_formats(self) -> tuple[MatrixFormat, ...]:
        """Those of the matrices and that of the token table."""
        return (*self.formats.values(), self.tokens)

    @property
    def quantized(self) -> bool:
        """Whether anything is not FP16."""
        return kv_format(self.kv).quantized or any(format != FP16 for format in self.all_formats)


def routes(name: str) -> bool:
    """Whether a matrix is a router's or a gate's, which stay FP16."""
    return name.endswith((".router", ".shared_gate"))


def block_group(name: str, group: int, k: int) -> int:
    """The group within a weight block that repeats a file's `group`'s scales exactly."""
    if k % group:
        raise ModelError(
            f"{name}: K is {k}, not a multiple of its group of {group}; expected a group that"
            " divides it"
        )
    fitting = [size for size in GROUPS if group % size == 0]
    if not fitting:
        raise ModelError(f"{name}: groups of {group} along K; expected a multiple of {GROUPS[0]}")
    return fitting[-1]


def with_kv(found: Quantization | None, kv: KvKind | None) -> Quantization | None:
    """`found` with another type of KV cache; None keeps it."""
    if kv is None or kv == (found.kv if found else "fp16"):
        return found
    return replace(found, kv=kv) if found else Quantization("fp16", kv=kv)


class Quantized(Protocol):
    """What is asked of a model's configuration."""

    @property
    def quantization(self) -> Quantization | None:
        """None: FP16."""

    @property
    def layers(self) -> int:
        """How many there are."""


def format_of(config: Quantized, names: Iterable[str]) -> MatrixFormat:
    """The format of one matmul of a model, whose columns are those of the matrices `names`."""
    found = config.quantization
    return FP16 if found is None else found.fused(names)


def tokens_of(config: Quantized) -> MatrixFormat:
    """The format of a model's token table."""
    return FP16 if config.quantization is None else config.quantization.tokens


def kv_of(config: Quantized) -> KvFormat:
    """How a model's K and V are stored."""
    return kv_format("fp16" if config.quantization is None else config.quantization.kv)


@dataclass(frozen=True)
class AttentionScales:
    """Static scales of one layer's q, k and v: value = INT8*scale. Only for INT8 attention."""

    q: np.float32
    k: np.float32
    v: np.float32


@dataclass(frozen=True)
class ActivationScales:
    """What lowering needs of a quantized checkpoint: the static scale of each INT8 and W4A8
    matrix's input by canonical name, and attention's by layer (empty without INT8 attention)."""

    inputs: Mapping[str, np.float32] = field(default_factory=dict)
    attention: tuple[AttentionScales, ...] = ()

    def input(self, names: Iterable[str]) -> np.float32:
        """The scale of the input of a matmul whose columns are those of the matrices `names`.
        ModelError if it is missing, not a positive finite number, or differs between them."""
        first, *others = list(names)
        for name in (first, *others):
            check_scale(f"{name}: scale of its input", self.inputs.get(name))
            if self.inputs[name] != self.inputs[first]:
                raise ModelError(
                    f"{name}: scale of its input is {self.inputs[name]}, that of {first}, which "
                    f"reads the same, {self.inputs[first]}; expected one"
                )
        return self.inputs[first]

    def of_layer(self, layer: int) -> AttentionScales:
        """Attention's scales of a layer; ModelError if they are missing."""
        if layer >= len(self.attention):
            raise ModelError(
                f"layer {layer}: no scales of q, k and v, which an INT8 KV cache needs; calibrate "
                "the model with one, or use kv fp16 or int8-heads"
            )
        return self.attention[layer]


def check_scale(what: str, value: np.float32 | None) -> np.float32:
    """`value`, checked to be a scale: positive, finite, and so is its reciprocal in FP32."""
    if value is None:
        raise ModelError(f"{what} is missing; expected a static one")
    with np.errstate(over="ignore", divide="ignore"):
        good = value > 0 and np.isfinite(value) and np.isfinite(np.float32(1) / value)
    if not good:
        raise ModelError(f"{what} is {value}; expected a positive finite number")
    return value


def unit_scales(config: Quantized) -> ActivationScales:
    """1 for every scale: for planning and timing without a checkpoint."""
    found = config.quantization
    if found is None:
        return ActivationScales()
    one = np.float32(1)
    inputs = {name: one for name, format in found.formats.items() if format.static}
    layers = config.layers if kv_of(config).static else 0
    return ActivationScales(inputs, (AttentionScales(one, one, one),) * layers)
