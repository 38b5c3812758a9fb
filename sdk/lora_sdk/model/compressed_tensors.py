"""`quantization_config` of compressed-tensors: which matrix has which format. What is supported:
INT8 weights with INT8 activations, static or by token, 4-bit weights in groups with these or FP16
activations, FP8 weights (FP8 activations stay FP16), INT8 attention or K and V in INT8 by token
and head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lora_host.errors import ModelError
from lora_sdk.model.fields import Fields, short
from lora_sdk.model.kv_formats import KvKind, kv_format
from lora_sdk.model.quantization import FP16, MatrixFormat, Quantization, block_group
from lora_sdk.model.targets import Module, Targets
from lora_sdk.model.weight_formats import (
    Compressed,
    WeightFormat,
    compressed_forms,
    of_compressed,
)

METHOD = "compressed-tensors"
ROTATED = "lora_rotated"  # our own field: weights by `lora quantize --rotate`
MIXED = "mixed-precision"  # each group has a format of its own
Strategy = Literal["tensor", "channel", "group", "block"]
STRATEGIES: dict[str, Strategy] = {
    "tensor": "tensor",
    "channel": "channel",
    "group": "group",
    "block": "block",
}
MAX_SIDE = 1 << 20  # of a block of scales
KINDS = {"int": (4, 8), "float": (8,)}  # bits of weights


@dataclass(frozen=True)
class WeightArguments:
    """`weights` of a group: `group` is 0 if scales are not per group, `block` the outputs and
    inputs of a block if they are per block."""

    kind: str
    bits: int
    symmetric: bool
    strategy: Strategy
    group: int
    ordered: bool
    block: tuple[int, int] | None = None


@dataclass(frozen=True)
class ConfigGroup:
    """One of `config_groups`: its targets, their weights, how they are stored, the format of
    these, and whether INT8 inputs have a scale per row."""

    targets: Targets
    weights: WeightArguments
    stored: Compressed
    format: WeightFormat
    dynamic: bool


@dataclass(frozen=True)
class Scheme:
    """A whole `quantization_config`."""

    groups: tuple[ConfigGroup, ...]
    ignore: Targets
    kv: KvKind
    rotated: bool

    def group_of(self, module: Module) -> ConfigGroup | None:
        """The group of a module: the first that matches by name, else the first by class."""
        if self.ignore.matches(module):
            return None
        for test in (Targets.by_name, Targets.matches):
            for group in self.groups:
                if test(group.targets, module):
                    return group
        return None


def read_scheme(values: Mapping[str, Any], where: str) -> Scheme:
    """The scheme that `quantization_config` `values` describes. ModelError names the first field,
    prefixed by `where`, that is malformed or not supported."""
    fields = Fields(values, where)
    fields.only("quant_method", (METHOD,), "this method")
    fields.only("sparsity_config", ({}, {"format": "dense"}), "a sparse checkpoint")
    fields.only("transform_config", ({},), "transformed weights")
    fields.only("quantization_status", ("compressed", "frozen"), "weights that are not compressed")
    form = _whole_format(fields)
    found = fields.raw("config_groups")[1]
    if not isinstance(found, dict) or not found:
        raise fields.error("config_groups", found, "an object of groups")
    groups, attention = [], False
    for name, value in found.items():
        one = _object(value, f"{where}.config_groups.{short(name).strip(chr(39))}")
        if one.has("weights"):
            groups.append(_group(one, form))
        else:
            _static(_object(one.raw("input_activations")[1], f"{one.where}.input_activations"))
            attention = True  # a group without weights means attention's q, k and v
    cache = _kv(fields)
    kv: KvKind = "int8" if attention else cache
    ignore = Targets(_texts(fields, "ignore"), f"{where}.ignore")
    return Scheme(tuple(groups), ignore, kv, fields.flag(ROTATED, False))


def _whole_format(fields: Fields) -> object:
    """The format of groups without one of their own. Any other that the library may add is refused,
    even where no group reads it: other readers would take the file for another one."""
    name, form = fields.raw("format", "int-quantized")
    known = {stored.format for stored in compressed_forms()} | {MIXED}
    if not isinstance(form, str) or form not in known:
        raise fields.error(name, form, "one of " + ", ".join(sorted(known)))
    return form


def quantization(
    scheme: Scheme, modules: Mapping[str, Module], ks: Mapping[str, int]
) -> Quantization:
    """The formats of the matrices `modules` by canonical name, whose inputs `ks` counts.

    ModelError names a matrix whose inputs are not a multiple of its group."""
    formats, ordered = {}, set()
    for name, module in modules.items():
        group = scheme.group_of(module)
        if group is not None:
            formats[name] = _format(group, name, ks[name])
            if group.weights.ordered:
                ordered.add(name)
    title, order = _title(formats, scheme.kv), frozenset(ordered)
    return Quantization(title, formats, scheme.kv, order, rotated=scheme.rotated)


def _format(group: ConfigGroup, name: str, k: int) -> MatrixFormat:
    if None in group.format.groups:
        return MatrixFormat(group.format.name, dynamic=group.dynamic)
    # A scale of a larger group or of a whole channel is repeated for the groups of a block.
    size = block_group(name, group.weights.group or k, k)
    return MatrixFormat(group.format.name, size, group.dynamic)


def _title(formats: Mapping[str, MatrixFormat], kv: KvKind) -> str:
    """W8A8 and so on, by the formats of the layers."""
    found = {form.kind: form for name, form in formats.items() if name != "lm_head"}
    titles = (
        found[kind].weights.title + " dynamic" * found[kind].dynamic for kind in sorted(found)
    )
    title = "+".join(titles) or FP16.weights.title
    return f"{title}, {kv} KV" if kv_format(kv).quantized else title


def _group(fields: Fields, form: object) -> ConfigGroup:
    fields.only("output_activations", (), "quantized outputs")
    own, inner = fields.raw("format", form)
    known = {stored.format for stored in compressed_forms()}
    if not isinstance(inner, str) or inner not in known:
        raise fields.error(own, inner, "one of " + ", ".join(sorted(known)))
    weights = _weights(_object(fields.raw("weights")[1], f"{fields.where}.weights"))
    stored = Compressed(inner, weights.bits, weights.kind)
    _check_stored(stored, fields.where)
    inputs = _inputs(fields, weights)
    chosen = of_compressed(stored, inputs != "half")
    if chosen is None:
        raise fields.error("input_activations", None, "INT8 ones: 8-bit weights support no others")
    targets = _texts(fields, "targets")
    if not targets:
        raise fields.error("targets", targets, "names of modules or of their classes")
    return ConfigGroup(Targets(targets, f"{fields.where}.targets"), weights, stored, chosen,
                       inputs == "dynamic")  # fmt: skip


def _check_stored(stored: Compressed, where: str) -> None:
    """ModelError: a format of the library does not have such weights."""
    same = [form for form in compressed_forms() if form.format == stored.format]
    if stored in same:
        return
    if stored.kind not in {form.kind for form in same}:
        raise ModelError(
            f"{where}.weights: type is {stored.kind!r}, expected {same[0].kind} in the format"
            f" {stored.format}"
        )
    raise ModelError(
        f"{where}.weights: num_bits is {stored.bits}, expected"
        f" {' or '.join(str(form.bits) for form in same)} in the format {stored.format}"
    )


def _inputs(fields: Fields, weights: WeightArguments) -> Literal["half", "static", "dynamic"]:
    """What inputs are: INT8 with a static scale or one by token, or FP16. FP8 ones stay FP16:
    nothing is rounded."""
    if not fields.has("input_activations"):
        return "half"
    inputs = _object(fields.raw("input_activations")[1], f"{fields.where}.input_activations")
    if _kind_of(inputs) == "float":
        _eight_bits(inputs)
        return "half"
    if weights.kind == "float":
        raise inputs.error("type", "int", "float, as the weights")
    if inputs.raw("dynamic", False)[1] is not True:
        _static(inputs)
        return "static"
    _eight_bits(inputs)
    inputs.choice("strategy", "token", {"token": "token"})
    return "dynamic"


def _weights(fields: Fields) -> WeightArguments:
    kind = _kind_of(fields)
    bits = fields.integer("num_bits", 8, 1, 64)
    if bits not in KINDS[kind]:
        raise fields.error("num_bits", bits, " or ".join(map(str, KINDS[kind])))
    fields.only("dynamic", (False,), "weights quantized while running")
    symmetric = fields.flag("symmetric", True)
    if bits == 8 and not symmetric:
        raise fields.error("symmetric", False, f"true: 8-bit {kind} weights have no zero points")
    size = fields.integer("group_size", -1, -1)
    inferred = "group" if size > 0 else "channel" if fields.has("group_size") else "tensor"
    strategy: Strategy = fields.choice("strategy", inferred, STRATEGIES)
    if strategy == "block" and kind != "float":
        raise fields.error("strategy", strategy, "tensor, channel or group for integers")
    if (strategy == "group") != (size > 0):
        raise fields.error("group_size", size, "a size with the strategy group, and only there")
    if bits == 8 and strategy == "group":
        raise fields.error("strategy", strategy, "no groups for 8 bits")
    order = fields.raw("actorder")[1]
    if order not in (None, False, "weight", "static", "group", "dynamic"):
        raise fields.error("actorder", order, "weight, group or null")
    ordered = order in ("group", "dynamic") and strategy == "group"
    block = _block(fields) if strategy == "block" else None
    return WeightArguments(kind, bits, symmetric, strategy, max(0, size), ordered, block)


def _block(fields: Fields) -> tuple[int, int]:
    """Outputs and inputs of a block that has one scale."""
    value = fields.raw("block_structure")[1]
    sides = value if isinstance(value, list) and len(value) == 2 else ()
    if not sides or any(type(side) is not int or not 1 <= side <= MAX_SIDE for side in sides):
        raise fields.error("block_structure", value, "two numbers, outputs and inputs of a block")
    return sides[0], sides[1]


def _kv(fields: Fields) -> KvKind:
    """K and V by token and head where no scales of q are in the files: INT8 attention needs all
    three."""
    value = fields.raw("kv_cache_scheme")[1]
    if value is None:
        return "fp16"
    inner = _object(value, f"{fields.where}.kv_cache_scheme")
    _integers(inner)
    if inner.flag("dynamic", False):  # per token of [head][token][column], so per head too
        _eight_bits(inner)
        inner.choice("strategy", "token", {"token": "token"})
    else:
        _static(inner)
    return "int8-heads"


def _static(fields: Fields) -> None:
    """Checks for INT8 with one static scale per tensor."""
    _eight_bits(fields)
    _integers(fields)
    if fields.raw("dynamic", False)[1] is not False:
        raise fields.error(
            "dynamic", fields.raw("dynamic")[1], "false: scales are static here"
        )  # fmt: skip
    fields.choice("strategy", "tensor", {"tensor": "tensor"})


def _eight_bits(fields: Fields) -> None:
    bits = fields.integer("num_bits", 8, 1, 64)
    if bits != 8:
        raise fields.error("num_bits", bits, "8")
    if not fields.flag("symmetric", True):
        raise fields.error("symmetric", False, "true: activations have no zero points")


def _kind_of(fields: Fields) -> str:
    kind = fields.raw("type", "int")[1]
    if not isinstance(kind, str) or kind.lower() not in KINDS:
        raise fields.error("type", kind, "int or float")
    return kind.lower()


def _integers(fields: Fields) -> None:
    if _kind_of(fields) != "int":
        raise fields.error("type", fields.raw("type")[1], "int")


def _object(value: object, where: str) -> Fields:
    if not isinstance(value, dict):
        raise ModelError(f"{where}: found {_kind(value)}, expected an object")
    return Fields(value, where)


def _texts(fields: Fields, name: str) -> list[str]:
    value = fields.raw(name, [])[1]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise fields.error(name, value, "a list of names")
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
