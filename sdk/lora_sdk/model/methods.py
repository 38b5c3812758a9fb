"""The registry of quantization methods, by `quantization_config.quant_method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lora_host.errors import ModelError
from lora_sdk.model import compressed_tensors, gptq, mxfp4, smoothquant_opt
from lora_sdk.model.fields import Fields
from lora_sdk.model.float8_matrix import Float8Matrix
from lora_sdk.model.gptq_matrix import GptqMatrix
from lora_sdk.model.mxfp4 import Mxfp4Matrix
from lora_sdk.model.packed_weights import CompressedMatrix
from lora_sdk.model.quantization import AttentionScales, MatrixFormat, Quantization
from lora_sdk.model.quantized import QuantizedMatrix, ReorderedMatrix, TensorFiles
from lora_sdk.model.smoothquant_opt import DerivedVector, Int8OptLayers
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.targets import Module

FIELD = "quantization_config"
HEAD = "lm_head"


@dataclass(frozen=True)
class QuantizedTensors:
    """What is quantized in a folder, by canonical name: matrices, biases computed from stored
    ones, attention's scales by layer if the method derives them, and the names of further
    tensors that it read."""

    matrices: dict[str, QuantizedMatrix] = field(default_factory=dict)
    vectors: dict[str, DerivedVector] = field(default_factory=dict)
    attention: tuple[AttentionScales, ...] = ()
    tensors: frozenset[str] = frozenset()


def read_quantization(
    fields: Fields, config: ModelConfig, sources: Mapping[str, Source], prefix: str
) -> Quantization | None:
    """The formats by config.json's `quantization_config`; None without one. `sources`
    are the model's, `prefix` that of its modules' full names. ModelError names the field
    or the matrix."""
    if _smoothquant(fields):
        return smoothquant_opt.quantization(config)
    values = _values(fields)
    if values is None:
        return None
    where = f"{fields.where}: {FIELD}"
    ks = {name: source.shape[0] for name, source in _matrices(sources).items()}
    ks |= {HEAD: config.embed_dim}
    found = _method(values).read(values, where, _modules(sources, prefix), ks)
    if config.tied and HEAD in found.formats:
        raise ModelError(
            f"{fields.where}: {FIELD} quantizes lm_head, which tie_word_embeddings makes the token"
            " table; add it to ignore, or untie the two"
        )
    found.check({name: source.shape for name, source in sources.items()})
    return found


def open_quantized(
    values: Mapping[str, Any],
    config: ModelConfig,
    files: TensorFiles,
    sources: Mapping[str, Source],
    file_name: Callable[[Source], str],
    prefix: str,
) -> QuantizedTensors:
    """What is quantized in a folder whose config.json is `values`, its tensors checked. ModelError
    names a tensor that is missing, misshapen or of a wrong type."""
    fields = Fields(values, str(files.folder / "config.json"))
    if config.quantization is None:
        return QuantizedTensors()
    formats = config.quantization.formats
    names = {name: file_name(sources[name]).removesuffix(".weight") for name in formats}
    if _smoothquant(fields):
        return _open_smoothquant(Int8OptLayers(files, names, config), sources, names)
    inner = _values(fields)
    if inner is None:
        return QuantizedTensors()
    where = f"{fields.where}: {FIELD}"
    make = _method(inner).open(inner, where, files, _modules(sources, prefix))

    def matrix(name: str) -> QuantizedMatrix:
        source = sources[name]
        if source.order is None:
            return make(name, names[name], source, formats[name])
        whole = replace(source, first=0, count=source.module_outputs, order=None)
        found = make(name, names[name], whole, formats[name])
        return ReorderedMatrix(found, names[name], source.outputs)

    return QuantizedTensors({name: matrix(name) for name in names})


def _smoothquant(fields: Fields) -> bool:
    return bool(fields.raw("architectures")[1] == [smoothquant_opt.CLASS])


def _open_smoothquant(
    layers: Int8OptLayers, sources: Mapping[str, Source], names: Mapping[str, str]
) -> QuantizedTensors:
    shapes = {name: (sources[name].shape[0], sources[name].shape[1]) for name in names}
    return QuantizedTensors(
        {name: layers.matrix(name, shape) for name, shape in shapes.items()},
        {f"{name}.bias": layers.bias(name, n) for name, (_, n) in shapes.items()},
        layers.attention,
        layers.tensors,
    )


Maker = Callable[[str, str, Source, MatrixFormat], QuantizedMatrix]
"""Canonical name, the file's module, where it lies and its format -> the matrix."""

Values = Mapping[str, Any]
Modules = Mapping[str, Module]


@dataclass(frozen=True)
class Method:
    """A quantization method. `read` returns formats from `quantization_config`, the prefix
    of errors, modules and K by canonical name. `open` returns the function that makes a matrix from
    the files. Both raise ModelError."""

    read: Callable[[Values, str, Modules, Mapping[str, int]], Quantization]
    open: Callable[[Values, str, TensorFiles, Modules], Maker]


def _read_packed(
    values: Values, where: str, modules: Modules, ks: Mapping[str, int]
) -> Quantization:
    names = {name: module.names[0] for name, module in modules.items()}
    return gptq.quantization(gptq.read_packing(values, where), names, ks)


def _open_packed(values: Values, where: str, files: TensorFiles, modules: Modules) -> Maker:
    packing = gptq.read_packing(values, where)
    return lambda name, module, source, form: GptqMatrix(files, module, source, packing, form)


def _read_compressed(
    values: Values, where: str, modules: Modules, ks: Mapping[str, int]
) -> Quantization:
    scheme = compressed_tensors.read_scheme(values, where)
    return compressed_tensors.quantization(scheme, modules, ks)


def _open_compressed(values: Values, where: str, files: TensorFiles, modules: Modules) -> Maker:
    scheme = compressed_tensors.read_scheme(values, where)

    def make(name: str, module: str, source: Source, form: MatrixFormat) -> QuantizedMatrix:
        group = scheme.group_of(modules[name])
        if group is None:
            raise ModelError(f"{name}: has a format ({form}), but {FIELD} does not quantize it")
        kind = Float8Matrix if group.stored.kind == "float" else CompressedMatrix
        return kind(files, module, source, group, form)

    return make


def _read_mxfp4(
    values: Values, where: str, modules: Modules, ks: Mapping[str, int]
) -> Quantization:
    return mxfp4.quantization(values, where, modules)


def _open_mxfp4(values: Values, where: str, files: TensorFiles, modules: Modules) -> Maker:
    return lambda name, module, source, form: Mxfp4Matrix(files, module, source, form)


_METHODS = {
    compressed_tensors.METHOD: Method(_read_compressed, _open_compressed),
    **dict.fromkeys(gptq.METHODS, Method(_read_packed, _open_packed)),
    mxfp4.METHOD: Method(_read_mxfp4, _open_mxfp4),
}


def register_method(name: str, method: Method) -> None:
    """Adds a `quant_method`. ModelError: the name is taken."""
    if name in _METHODS:
        raise ModelError(f"quant_method {name!r} is registered already; choose another name")
    _METHODS[name] = method


def _method(values: Values) -> Method:
    return _METHODS[values["quant_method"]]


def _values(fields: Fields) -> Mapping[str, Any] | None:
    value = fields.raw(FIELD)[1]
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise fields.error(FIELD, value, "an object")
    inner = Fields(value, f"{fields.where}: {FIELD}")
    method = inner.raw("quant_method")[1]
    if not isinstance(method, str) or method not in _METHODS:
        raise inner.error("quant_method", method, "one of " + ", ".join(_METHODS))
    return value


def _matrices(sources: Mapping[str, Source]) -> dict[str, Source]:
    return {name: source for name, source in sources.items() if source.layout in ("io", "oi")}


def _modules(sources: Mapping[str, Source], prefix: str) -> dict[str, Module]:
    """Includes a tied lm_head, which has no source: a folder may name it nevertheless."""
    found = {HEAD: Module((HEAD,), "Linear")}
    for name, source in _matrices(sources).items():
        own = source.tensor.removesuffix(".weight")
        names = (prefix + own, own) if source.prefixed else (own,)
        conv = source.layout == "io" and len(source.file_shape) == 2  # GPT-2's
        found[name] = Module(names, "Conv1D" if conv else "Linear")
    return found
