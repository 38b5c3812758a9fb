"""The registry of weight formats: one row per format has all that the SDK knows of it.

A new format is one more row (`register`) and a reader of its tensors (lora_sdk.model.methods). It
is computed as one of the types that boards know (abi.h)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.model.columns import BlockColumns, Columns, HalfColumns, Int4Columns, Int8Columns

GROUP_BITS = 16 + 4  # an FP16 scale and a zero point


@dataclass(frozen=True)
class Compressed:
    """How compressed-tensors stores weights: the name of its format, and of their values the bits
    and the type."""

    format: str
    bits: int
    kind: str = "int"

    def __str__(self) -> str:
        return f"{self.bits}-bit {self.kind} in {self.format}"


@dataclass(frozen=True)
class GgufBlock:
    """A block of GGUF files (docs/quantization.md): `kind` names abi.h's number of it, `weights`
    along K take `bytes`. It holds the numbers of `types` exactly."""

    kind: str
    weights: int
    bytes: int
    types: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WeightFormat:
    """`name` in configurations, `title` in messages. Boards compute it as `abi_type`, a constant of
    abi.h, which overlays list as `overlay_weights`; `blocks` names abi.h's size of a block by group
    along K (None: no groups). A weight has `bits` bits; `integer`: inputs are INT8.

    `columns` is what its matrices are read as (None: FP16 as it is). `scheme` of `lora quantize`
    and `precision` of overlays made for it: None where there is none. `compressed`: the ways in
    which compressed-tensors stores it; `lora quantize` writes the first. `gguf`: a packing of FP16
    weights, which boards without it hold as FP16."""

    name: str
    title: str
    abi_type: str
    overlay_weights: str
    blocks: Mapping[int | None, str]
    bits: int
    integer: bool
    columns: type[Columns] | None
    scheme: str | None = None
    compressed: tuple[Compressed, ...] = ()
    precision: str | None = None
    gguf: GgufBlock | None = None

    @property
    def groups(self) -> tuple[int | None, ...]:
        """Weights along K that may share a scale, ascending; (None,) without groups."""
        return tuple(self.blocks)

    @property
    def type_number(self) -> int:
        """The low bits of a matrix command's weight_type."""
        return int(getattr(abi, self.abi_type))

    def weight_type(self, group: int | None) -> int:
        """A matrix command's weight_type."""
        high = group.bit_length() - 1 if group else 0
        if self.gguf is not None:
            high = int(getattr(abi, self.gguf.kind))
        return self.type_number | high << abi.WEIGHT_GROUP_SHIFT

    def block_bytes(self, group: int | None) -> int:
        """Bytes of one weight block of 128 x 32, scales and zero points included."""
        return int(getattr(abi, self.blocks[group]))

    def metadata_bytes(self, group: int | None) -> int:
        """Bytes of a block after its values: scales, zero points, padding."""
        return self.block_bytes(group) - abi.BLOCK_K * abi.BLOCK_N * self.bits // 8

    def matrix_bytes(self, group: int | None, k: int, n: int) -> int:
        """Bytes of a matrix [k, n] itself, without padding: weights, scales and zero points."""
        if self.gguf is not None:
            return k * n * self.gguf.bytes // self.gguf.weights
        groups = 0 if group is None else k // group
        return (k * self.bits + groups * GROUP_BITS) * n // 8

    def fitting_group(self, k: int) -> int | None:
        """The max group that divides `k`; None if none does or there are no groups."""
        fitting = [group for group in self.groups if group is not None and k % group == 0]
        return max(fitting, default=None)


_FORMATS: dict[str, WeightFormat] = {}


def register(row: WeightFormat) -> WeightFormat:
    """Adds a format. ModelError: the name is taken, or its type differs from what boards know."""
    if row.name in _FORMATS:
        raise ModelError(f"weight format {row.name!r} is registered already; choose another name")
    for other in _FORMATS.values():
        same = _board_facts(other) == _board_facts(row)
        if _type(other) == _type(row) and not (same and _blocks(row) <= _blocks(other)):
            raise ModelError(
                f"weight format {row.name!r}: {row.abi_type} is described differently by "
                f"{other.name!r}; expected the same blocks, bits and inputs"
            )
    _FORMATS[row.name] = row
    return row


def _type(row: WeightFormat) -> tuple[str, str | None]:
    return row.abi_type, None if row.gguf is None else row.gguf.kind


def _board_facts(row: WeightFormat) -> tuple[object, ...]:
    return row.overlay_weights, row.bits, row.integer


def _blocks(row: WeightFormat) -> set[tuple[int | None, str]]:
    return set(row.blocks.items())


def weight_format(name: str) -> WeightFormat:
    """The format of this name; ModelError where there is none."""
    try:
        return _FORMATS[name]
    except KeyError:
        known = ", ".join(_FORMATS)
        raise ModelError(f"matrix format {name!r}; expected one of {known}") from None


def all_formats() -> Iterator[WeightFormat]:
    """Every format in the order of registration."""
    return iter(tuple(_FORMATS.values()))


def of_weight_type(weight_type: int) -> tuple[WeightFormat, int | None]:
    """The format, and the group, that boards compute for a matrix command's weight_type;
    ModelError: a type or a group that does not exist."""
    for row in _FORMATS.values():
        for group in row.groups:
            if row.weight_type(group) == weight_type:
                return row, group
    raise ModelError(f"weight type {weight_type:#x} is unknown; expected one of abi.h")


def of_scheme(scheme: str) -> WeightFormat:
    """The format of the layers in a scheme of `lora quantize`; ModelError: there is none."""
    return _by("scheme", scheme)


def of_precision(precision: str) -> WeightFormat:
    """The format that overlays of this precision are made for; ModelError: there is none."""
    return _by("precision", precision)


def schemes() -> tuple[str, ...]:
    """Schemes of `lora quantize`."""
    return tuple(row.scheme for row in _FORMATS.values() if row.scheme is not None)


def _by(field: str, value: str) -> WeightFormat:
    rows = {getattr(row, field): row for row in reversed(_FORMATS.values())}
    if value not in rows:
        known = ", ".join(name for name in reversed(rows) if name is not None)
        raise ModelError(f"{field} {value!r}; expected one of {known}")
    return rows[value]


def compressed_forms() -> tuple[Compressed, ...]:
    """Every way in which compressed-tensors stores weights of some format, once."""
    return tuple(dict.fromkeys(form for row in _FORMATS.values() for form in row.compressed))


def of_compressed(form: Compressed, integer: bool) -> WeightFormat | None:
    """The format of weights that compressed-tensors stores so, with INT8 inputs or FP16 ones; None
    where there is none."""
    for row in _FORMATS.values():
        if form in row.compressed and row.integer == integer:
            return row
    return None


INTEGERS = Compressed("int-quantized", 8)
NIBBLES = Compressed("pack-quantized", 4)
NIBBLES_IN_BYTES = Compressed("int-quantized", 4)
FLOATS8 = (Compressed("float-quantized", 8, "float"), Compressed("naive-quantized", 8, "float"))

register(
    WeightFormat(
        "fp16", "FP16", "WEIGHT_FP16", "fp16", {None: "BLOCK_BYTES_FP16"}, bits=16, integer=False,
        columns=None, precision="fp16",
    )
)  # fmt: skip
INT8 = register(
    WeightFormat(
        "int8", "W8A8", "WEIGHT_INT8", "int8", {None: "BLOCK_BYTES_INT8"}, bits=8, integer=True,
        columns=Int8Columns, scheme="w8a8", compressed=(INTEGERS,), precision="w8a8",
    )
)  # fmt: skip
GROUPS = (32, 64, 128)
"""Along K, of 4-bit weights: sizes of which a weight block contains whole groups."""
_INT4_BLOCKS: Mapping[int | None, str] = {size: f"BLOCK_BYTES_INT4_{size}" for size in GROUPS}
W4A8 = register(
    WeightFormat(
        "w4a8", "W4A8", "WEIGHT_W4A8", "w4a8", _INT4_BLOCKS, bits=4, integer=True,
        columns=Int4Columns, scheme="w4a8", compressed=(NIBBLES, NIBBLES_IN_BYTES),
        precision="w4a8",
    )
)  # fmt: skip
W4A16 = register(
    WeightFormat(
        "w4a16", "W4A16", "WEIGHT_W4A16", "w4a16", _INT4_BLOCKS, bits=4, integer=False,
        columns=Int4Columns, scheme="w4a16", compressed=(NIBBLES, NIBBLES_IN_BYTES),
    )
)  # fmt: skip
register(
    WeightFormat(
        "fp8", "FP8", "WEIGHT_FP16", "fp16", {None: "BLOCK_BYTES_FP16"}, bits=16, integer=False,
        columns=HalfColumns, compressed=FLOATS8,
    )
)  # fmt: skip


GGUF = "gguf"
"""What overlays list that multiply blocks of GGUF files."""


def _gguf(name: str, bits: int, weights: int, size: int, *types: str) -> WeightFormat:
    title = name.upper()
    block = GgufBlock(f"GGUF_{title}", weights, size, types)
    return register(
        WeightFormat(
            name, title, "WEIGHT_GGUF", GGUF, {None: f"BLOCK_BYTES_{title}"}, bits=bits,
            integer=False, columns=BlockColumns, gguf=block,
        )
    )  # fmt: skip


GGUF_FORMATS = (  # the smallest first
    _gguf("mxfp4", 4, 32, 17, "MXFP4"),
    _gguf("q4_0", 4, 32, 18, "Q4_0"),
    _gguf("iq4_nl", 4, 32, 18, "IQ4_NL"),
    _gguf("q4_k", 4, 256, 144, "Q4_K"),
    _gguf("q4_1", 4, 32, 20, "Q4_1"),
    _gguf("q5_0", 5, 32, 22, "Q5_0", "Q4_0"),
    _gguf("q5_k", 5, 256, 176, "Q5_K", "Q4_K"),
    _gguf("q5_1", 5, 32, 24, "Q5_1", "Q4_1"),
    _gguf("q6_k", 6, 256, 210, "Q6_K", "Q3_K"),
    _gguf("k_mixed", 6, 256, 232, "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    _gguf("q8_0", 8, 32, 34, "Q8_0", "Q5_0", "Q4_0", "IQ4_NL"),
)


def gguf_format(types: Collection[str]) -> WeightFormat | None:
    """The smallest block that holds the numbers of all these types; None: there is none."""
    for row in GGUF_FORMATS:
        if row.gguf is not None and set(types) <= set(row.gguf.types):
            return row
    return None
