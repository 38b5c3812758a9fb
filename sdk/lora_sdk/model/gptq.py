"""GPTQ and AWQ checkpoints: 4-bit weights in groups, FP16 activations (W4A16). AWQ folds its
scaling of activations into the preceding norms, so the two differ only in packing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import Int4Columns
from lora_sdk.model.fields import Fields
from lora_sdk.model.half import to_half
from lora_sdk.model.packed_words import (
    AWQ_ORDER,
    IN_ORDER,
    WORD_VALUES,
    values_along_columns,
    values_along_rows,
)
from lora_sdk.model.quantization import MatrixFormat, Quantization, block_group, routes
from lora_sdk.model.weight_formats import W4A16

METHODS = ("gptq", "awq")
V1_WORD = 0x11111111  # v1 stores each zero point less one, by one subtraction from the whole word
CHECKPOINTS = {"gptq": "gptq", "gptq_v2": "gptq_v2"}


@dataclass(frozen=True)
class Packing:
    """How a checkpoint packs: `group` along K (0: one group of all inputs), `v1` zero points,
    `order` whether inputs may be permuted, `awq` AWQ's layout of words; `unquantized`: parts of
    names of modules that remain FP16."""

    group: int
    v1: bool
    order: bool
    awq: bool
    unquantized: tuple[str, ...]


def read_packing(values: Mapping[str, Any], where: str) -> Packing:
    """The packing by `quantization_config`. ModelError names the first field, prefixed by `where`,
    that is malformed or not supported."""
    fields = Fields(values, where)
    method = fields.choice("quant_method", "gptq", {name: name for name in METHODS})
    name = "bits" if fields.has("bits") else "w_bit"
    bits = fields.integer(name, 4, 1, 64)
    if bits != 4:
        raise fields.error(name, bits, "4")
    name = "group_size" if fields.has("group_size") else "q_group_size"
    group = fields.integer(name, 128, -1)
    if group == 0:
        raise fields.error(name, group, "a group size, or -1 for all inputs")
    if method == "awq":
        return _awq(fields, max(0, group))
    form = "checkpoint_format" if fields.has("checkpoint_format") else "format"
    v1 = fields.choice(form, "gptq", CHECKPOINTS) == "gptq"
    fields.flag("sym", True)
    fields.only("dynamic", ({},), "other bits for some modules")
    fields.only("lm_head", (False,), "a packed lm_head")
    return Packing(max(0, group), v1, fields.flag("desc_act", False), False, ())


def _awq(fields: Fields, group: int) -> Packing:
    if not fields.flag("zero_point", True):
        raise fields.error("zero_point", False, "true: AWQ's packing has zero points")
    version = fields.raw("version", "gemm")[1]
    if not isinstance(version, str) or version.lower() != "gemm":
        raise fields.error("version", version, "gemm: the layouts of other kernels are not stored")
    excluded = fields.raw("modules_to_not_convert")[1] or []
    if not isinstance(excluded, list) or not all(isinstance(item, str) for item in excluded):
        raise fields.error("modules_to_not_convert", excluded, "a list of names")
    return Packing(group, False, False, True, tuple(excluded))


def quantization(
    packing: Packing, modules: Mapping[str, str], ks: Mapping[str, int]
) -> Quantization:
    """The formats of the matrices `modules` (canonical name -> the file's module), whose inputs
    `ks` counts; routers of experts are not packed. ModelError names a matrix whose inputs are not a
    multiple of its group."""
    formats = {}
    for name, module in modules.items():
        excluded = routes(name) or any(part in module for part in packing.unquantized)
        if name != "lm_head" and not excluded:
            formats[name] = MatrixFormat(
                W4A16.name, block_group(name, packing.group or ks[name], ks[name])
            )
    order = frozenset(formats) if packing.order else frozenset()
    return Quantization(W4A16.title, formats, "fp16", order)


@dataclass(frozen=True)
class PackedMatrix:
    """The tensors of one matrix [k, n], mapped from the file; `scales` with their type's name, and
    `g_idx` int32 [k], the group of each input, where the file has one."""

    label: str
    packing: Packing
    k: int
    n: int
    qweight: NDArray[Any]
    qzeros: NDArray[Any]
    scales: NDArray[Any]
    scales_kind: str
    g_idx: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        groups = self.k // self.group
        packed, n = self.packing, self.n
        rows = (self.k, n // WORD_VALUES) if packed.awq else (self.k // WORD_VALUES, n)
        if self.k % WORD_VALUES or n % WORD_VALUES:
            raise ModelError(
                f"{self.label}: {self.k} inputs and {n} outputs; expected multiples of "
                f"{WORD_VALUES}, the values of a word"
            )
        self._check("qweight", self.qweight, rows, np.int32)
        self._check("qzeros", self.qzeros, (groups, n // WORD_VALUES), np.int32)
        self._check("scales", self.scales, (groups, n), None)
        if self.g_idx is not None:
            self._check("g_idx", self.g_idx, (self.k,), np.int32)
            self._check_groups(self.g_idx, groups)

    @property
    def group(self) -> int:
        """Inputs of a group, as the file counts them."""
        return self.packing.group or self.k

    def columns(self, start: int, stop: int) -> Int4Columns:
        """Outputs start..stop-1, inputs in group order; groups as in weight blocks."""
        values = self._values(start, stop)
        order = self.permutation()
        if order is not None:
            values = values[:, order]
        return Int4Columns(values, *self._groups(start, stop))

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer, as the file's own words."""
        scales, zeros = self._groups(start, stop)
        kind = "awq" if self.packing.awq else "words"
        return PackPart(
            self.label, self.qweight, kind, "io", start, stop - start, scales, zeros,
            self.permutation(),
        )  # fmt: skip

    def _groups(self, start: int, stop: int) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
        """Scales and zero points [stop-start, groups] of outputs start..stop-1."""
        zeros = self._zeros(start, stop)
        scales = to_half(self.scales[:, start:stop], self.scales_kind, f"{self.label}.scales").T
        repeat = self.group // block_group(self.label, self.group, self.k)
        if repeat > 1:
            zeros, scales = np.repeat(zeros, repeat, axis=1), np.repeat(scales, repeat, axis=1)
        return np.ascontiguousarray(scales), zeros

    def permutation(self) -> NDArray[np.uint32] | None:
        """The input at each index of the group order, uint32 [k]; None without act-order."""
        if not self.packing.order:
            return None
        if self.g_idx is None:
            return np.arange(self.k, dtype=np.uint32)
        return np.argsort(self.g_idx, kind="stable").astype(np.uint32)

    def _values(self, start: int, stop: int) -> NDArray[np.uint8]:
        if self.packing.awq:
            return values_along_columns(self.qweight, start, stop, AWQ_ORDER)
        return values_along_rows(self.qweight[:, start:stop])

    def _zeros(self, start: int, stop: int) -> NDArray[np.uint8]:
        order = AWQ_ORDER if self.packing.awq else IN_ORDER
        plus = V1_WORD if self.packing.v1 else 0
        return values_along_columns(self.qzeros, start, stop, order, plus)

    def _check(self, name: str, array: NDArray[Any], shape: tuple[int, ...], kind: Any) -> None:
        if array.shape != shape or (kind is not None and array.dtype != kind):
            raise ModelError(
                f"{self.label}.{name}: {array.dtype} {list(array.shape)}, expected "
                f"{np.dtype(kind).name if kind else 'a float type'} {list(shape)} by config.json"
            )

    def _check_groups(self, g_idx: NDArray[Any], groups: int) -> None:
        if g_idx.min() < 0 or g_idx.max() >= groups:
            raise ModelError(
                f"{self.label}.g_idx: groups {g_idx.min()}..{g_idx.max()}, expected 0..{groups - 1}"
            )
        counts = np.bincount(g_idx, minlength=groups)
        if np.any(counts != self.group):
            worst = int(np.argmax(counts != self.group))
            raise ModelError(
                f"{self.label}.g_idx: group {worst} has {counts[worst]} inputs, expected "
                f"{self.group}"
            )
        if not self.packing.order and bool(np.any(np.diff(g_idx) < 0)):
            raise ModelError(
                f"{self.label}.g_idx: groups are not in order, though desc_act is false; expected "
                "ascending numbers"
            )
