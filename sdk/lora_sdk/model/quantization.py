"""How a model's matrices and its KV cache are quantized, and what a checkpoint hands over of them
(docs/numbers.md, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

Kind = Literal["fp16", "int8", "w4a8", "w4a16"]
KvKind = Literal["fp16", "int8", "int8-heads"]
KINDS: tuple[Kind, ...] = get_args(Kind)
KV_KINDS: tuple[KvKind, ...] = get_args(KvKind)
GROUPS = (32, 64, 128)  # along K, of 4-bit weights: what a weight block holds whole (abi.h)


@dataclass(frozen=True)
class MatrixFormat:
    """`kind` of a matrix's weights and activations: "fp16"; "int8", both 8 bits; "w4a8" and
    "w4a16", 4-bit weights in groups of `group` along K (None for the other kinds). ModelError: an
    unknown kind or a group that no weight block holds."""

    kind: Kind
    group: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ModelError(f"matrix format {self.kind!r}; expected one of {', '.join(KINDS)}")
        allowed: Sequence[int | None] = GROUPS if self.four_bit else (None,)
        if self.group not in allowed:
            expected = " or ".join(map(str, allowed))
            raise ModelError(f"group {self.group} of {self.kind} weights; expected {expected}")

    @property
    def four_bit(self) -> bool:
        """Whether weights have 4 bits, a scale and a zero point a group."""
        return self.kind in ("w4a8", "w4a16")

    @property
    def integer(self) -> bool:
        """Whether activations are quantized to INT8 before the product."""
        return self.kind in ("int8", "w4a8")

    def __str__(self) -> str:
        return self.kind if self.group is None else f"{self.kind} in groups of {self.group}"


FP16 = MatrixFormat("fp16")


@dataclass(frozen=True)
class Quantization:
    """`formats` by canonical matrix name (`layer.I.q`, ..., `lm_head`); what it does not name is
    FP16. `kv`: how K and V are stored. `act_order`: names of the 4-bit matrices whose inputs have
    to be permuted first (`Checkpoint.permutation`). `scheme` is the name for people."""

    scheme: str
    formats: Mapping[str, MatrixFormat] = field(default_factory=dict)
    kv: KvKind = "fp16"
    act_order: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.kv not in KV_KINDS:
            raise ModelError(f"KV cache type {self.kv!r}; expected one of {', '.join(KV_KINDS)}")
        object.__setattr__(self, "formats", dict(self.formats))

    def __hash__(self) -> int:
        return hash((self.scheme, frozenset(self.formats.items()), self.kv, self.act_order))

    def format(self, name: str) -> MatrixFormat:
        """The format of one matrix of the checkpoint."""
        return self.formats.get(name, FP16)

    def fused(self, names: Iterable[str]) -> MatrixFormat:
        """The one format of matrices that are columns of one product (q|k|v, gate|up). ModelError
        names two that differ, in format or in having an order of their inputs."""
        first, *others = list(names)
        for name in others:
            if self.format(name) != self.format(first):
                raise ModelError(
                    f"{name}: {self.format(name)}, but {first}, a part of the same product, is "
                    f"{self.format(first)}; expected the same format"
                )
            if (name in self.act_order) != (first in self.act_order):
                raise ModelError(
                    f"{name} and {first} are parts of one product, but only one of them has its "
                    "inputs in an order of its own (act-order); expected both or neither"
                )
        return self.format(first)

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """ModelError names a matrix whose K (`shapes` gives [K, N] by canonical name) is not a
        multiple of its group, or a name that the model has not."""
        for name, chosen in self.formats.items():
            if name not in shapes:
                raise ModelError(
                    f"{name}: has a format ({chosen}), but the model has no such matrix"
                )
            k = shapes[name][0]
            if chosen.group is not None and k % chosen.group:
                raise ModelError(
                    f"{name}: K is {k}, not a multiple of its group of {chosen.group}; expected a "
                    "group that divides it"
                )

    @property
    def quantized(self) -> bool:
        """Whether anything is not FP16."""
        return self.kv != "fp16" or any(format != FP16 for format in self.formats.values())


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


def with_kv_cache(config: ModelConfig, kv: KvKind | None) -> ModelConfig:
    """A model's configuration with another type of KV cache; None keeps it."""
    return replace(config, quantization=with_kv(config.quantization, kv))


def format_of(config: ModelConfig, names: Iterable[str]) -> MatrixFormat:
    """The format of one product of a model, whose columns are those of the matrices `names`."""
    found = config.quantization
    return FP16 if found is None else found.fused(names)


def kv_of(config: ModelConfig) -> KvKind:
    """How a model's K and V are stored."""
    return "fp16" if config.quantization is None else config.quantization.kv


@dataclass(frozen=True)
class Int8Columns:
    """Output columns of a matrix in 8 bits: w = values*scales, `values` int8 [columns, K] in
    -127..127 or -128..127, `scales` FP32 [columns] (one number repeated where it is per tensor)."""

    values: NDArray[np.int8]
    scales: NDArray[np.float32]


@dataclass(frozen=True)
class Int4Columns:
    """Output columns of a 4-bit matrix: w = (values - zeros)*scales, `values` uint8 [columns, K] in
    0..15, K in group order (behind `Checkpoint.permutation` where there is one), `scales` FP16
    [columns, K/group], `zeros` uint8 [columns, K/group] in 0..15."""

    values: NDArray[np.uint8]
    scales: NDArray[np.float16]
    zeros: NDArray[np.uint8]


@dataclass(frozen=True)
class AttentionScales:
    """Static scales of one layer's q, k and v: value = INT8*scale. Of `kv` "int8" alone."""

    q: np.float32
    k: np.float32
    v: np.float32


@dataclass(frozen=True)
class ActivationScales:
    """What lowering needs of a quantized checkpoint: the scale of each INT8 and W4A8 matrix's input
    by canonical name, and attention's by layer (empty but with INT8 attention)."""

    inputs: Mapping[str, np.float32] = field(default_factory=dict)
    attention: tuple[AttentionScales, ...] = ()

    def input(self, names: Iterable[str]) -> np.float32:
        """The scale of the one input of a product whose columns are those of the matrices `names`;
        ModelError where it is missing, not a positive finite number, or not one."""
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
        """Attention's scales of a layer; ModelError where they are missing."""
        if layer >= len(self.attention):
            raise ModelError(
                f"layer {layer}: no scales of q, k and v, which an INT8 KV cache needs; calibrate "
                "the model with one, or take kv fp16 or int8-heads"
            )
        return self.attention[layer]


def check_scale(what: str, value: np.float32 | None) -> np.float32:
    """`value`, where it is a scale: positive, finite, and so is its reciprocal in FP32."""
    if value is None:
        raise ModelError(f"{what} is missing; expected a static one")
    with np.errstate(over="ignore", divide="ignore"):
        good = value > 0 and np.isfinite(value) and np.isfinite(np.float32(1) / value)
    if not good:
        raise ModelError(f"{what} is {value}; expected a positive finite number")
    return value


def unit_scales(config: ModelConfig) -> ActivationScales:
    """1 for every scale: for planning and timing without a checkpoint."""
    found = config.quantization
    if found is None:
        return ActivationScales()
    one = np.float32(1)
    inputs = {name: one for name, format in found.formats.items() if format.integer}
    layers = config.layers if found.kv == "int8" else 0
    return ActivationScales(inputs, (AttentionScales(one, one, one),) * layers)
