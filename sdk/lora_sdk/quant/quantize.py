"""Quantizes a model folder layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lora_host.errors import RequestError
from lora_sdk import __version__
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import family_of, load_config
from lora_sdk.model.model_files import model_files
from lora_sdk.model.quantization import routes
from lora_sdk.model.spec import ModelConfig, dequantized_blocks
from lora_sdk.quant.calibrate import LayerCalibration, LayerResult
from lora_sdk.quant.config_json import quantized_config
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.folder_writer import FolderWriter, check_new
from lora_sdk.quant.held_out import Streams, finish
from lora_sdk.quant.kept_work import KeptWork, digest_of_inputs
from lora_sdk.quant.layer import (
    FileModule,
    Parameters,
    Weights,
    file_modules,
    full_name,
    read_parameters,
)
from lora_sdk.quant.modules import Tensors, half
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.record import record_layer
from lora_sdk.quant.reference import embed_windows
from lora_sdk.quant.rotate import RotatedCheckpoint
from lora_sdk.quant.threads import blas_threads

Progress = Callable[[int, int], None]


@dataclass
class Report:
    """The result: bytes of the weights, and per layer the chosen strengths and the relative error
    of each module's output on the calibration text. `resumed`: layers that an earlier run made.
    `bits`: of the tokens of the held-out windows but the first of each, by the model and by what
    was written, both in float32 on the boards' values."""

    bytes: int = 0
    strengths: list[dict[str, float | None]] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    resumed: int = 0
    bits: tuple[float, float] = (0.0, 0.0)
    costs: dict[str, float] = field(default_factory=dict)
    recipe: Recipe | None = None

    @property
    def worst(self) -> str:
        """The module with the largest output error."""
        return max(self.errors, key=self.errors.__getitem__)


def quantize(
    model: Path,
    out: Path,
    recipe: Recipe,
    windows: Sequence[Sequence[int]],
    progress: Progress | None = None,
    resume: bool = False,
    held_out: Sequence[Sequence[int]] = (),
) -> Report:
    """Write the folder `out`: the model of a folder or a GGUF file, quantized by
    `recipe` on token windows of calibration text. `held_out`: windows of other text, to measure.

    `progress(done, total)` counts layers and the rest. `resume`: what an interrupted run has done
    stays beside `out`, and a run with the same arguments goes on there. RequestError: a bad recipe,
    no new folder `out`, or kept work of other arguments. ModelError: an invalid model, or one that
    is quantized already."""
    check_new(out)
    config = dequantized_blocks(load_config(model))
    if config.quantization is not None:
        raise RequestError(f"{model}: is quantized already; use the original model")
    recipe.check(config)
    checkpoint = Checkpoint.open(model, config)
    with ExitStack() as stack:
        stack.enter_context(blas_threads(config))
        kept = None
        if resume:
            inputs = digest_of_inputs(model, recipe, [*windows, *held_out], __version__)
            kept = stack.enter_context(KeptWork(out, inputs))
        writer = stack.enter_context(FolderWriter(out, None if kept is None else kept.folder))
        if progress is not None:
            progress(0, config.layers + 1)  # the first layer takes a while
        rounded = RotatedCheckpoint(checkpoint) if recipe.rotate else checkpoint
        run = _Run(checkpoint, rounded, recipe, writer, kept)
        report = _run(run, model, windows, held_out, progress)
    if progress is not None:
        progress(config.layers + 1, config.layers + 1)
    return report


@dataclass(frozen=True)
class _Run:
    """`source`: the model, `checkpoint`: what is rounded, the same or turned. `kept`: the work of
    an interrupted run, None if nothing is to be kept."""

    source: Checkpoint
    checkpoint: Checkpoint | RotatedCheckpoint
    recipe: Recipe
    writer: FolderWriter
    kept: KeptWork | None


def _run(
    run: _Run,
    model: Path,
    windows: Sequence[Sequence[int]],
    held_out: Sequence[Sequence[int]],
    progress: Progress | None,
) -> Report:
    checkpoint, recipe, writer = run.checkpoint, run.recipe, run.writer
    config = checkpoint.config
    streams, report = _begin(run, model, windows, held_out)
    for layer in range(len(report.strengths), config.layers):
        result, tensors = _layer(run, layer, streams)
        writer.add(tensors)
        report.strengths.append(result.strengths)
        report.errors.update(result.errors)
        if run.kept is not None:
            run.kept.save(tensors, streams.all, writer.written)
        if progress is not None:
            progress(layer + 1, config.layers + 1)
    writer.add(_outside(checkpoint))
    found, bits, recipe = finish(run.source, checkpoint, recipe, streams, held_out)
    writer.add(found.tensors)
    report.errors |= found.error
    report.bits, report.costs, report.recipe = (bits.before, bits.after), bits.costs, recipe
    writer.flush()
    if run.kept is not None:
        run.kept.clear()
    writer.finish(quantized_config(model_files(model).config_values(), config, recipe))
    report.bytes = writer.bytes
    return report


def _begin(
    run: _Run,
    model: Path,
    windows: Sequence[Sequence[int]],
    held_out: Sequence[Sequence[int]],
) -> tuple[Streams, Report]:
    """The inputs of the first layer that is not done, and what was found in those before."""
    report = Report()
    if run.kept is not None:
        record = run.kept.record
        report = Report(0, record.strengths, record.errors, record.layers)
        if record.layers:
            run.writer.written, all_of = run.kept.restore()
            return Streams.of(all_of, len(windows), len(held_out)), report
        run.kept.empty()
    run.writer.copy_from(model)
    operations = DenseOperations(run.source, rounded=False)
    exact = embed_windows(operations, [*windows, *held_out])
    ours = exact
    if isinstance(run.checkpoint, RotatedCheckpoint):
        ours = [run.checkpoint.turned(x) for x in exact]
    return Streams.first(ours, exact[len(windows) :], run.recipe), report


def _layer(run: _Run, layer: int, streams: Streams) -> tuple[LayerResult, Tensors]:
    """Round a layer, and replace `streams` by its outputs."""
    checkpoint, recipe, lead = run.checkpoint, run.recipe, f"layer.{layer}."
    config, parameters = checkpoint.config, read_parameters(checkpoint, lead)
    turned = checkpoint is not run.source
    exact = read_parameters(run.source, lead) if turned else parameters
    streams.run_exact(run.source.config, layer, exact)
    record = record_layer(streams.text, layer, config, parameters)[1]
    result = LayerCalibration(layer, config, recipe, parameters, record).run(
        file_modules(config, lead)
    )
    parameters.matrices |= result.rounded
    streams.run_rounded(config, layer, recipe, parameters, result)
    return result, _layer_tensors(config, lead, parameters, result)


def _layer_tensors(
    config: ModelConfig, lead: str, parameters: Parameters, result: LayerResult
) -> Tensors:
    """The file's tensors of a layer: integers, scales of inputs and attention, vectors."""
    found: Tensors = {}
    sources = family_of(config).sources(config)
    for module in file_modules(config, lead):
        found |= _bias(config, module, parameters)
        if routes(module.parts[0]):
            tensor = f"{module.name}.weight"
            found[tensor] = half(tensor, parameters.matrices[module.parts[0]].T)
            continue
        found |= result.modules[module.name].tensors(module.name)
        scale = result.inputs.get(module.parts[0])
        if scale is not None:
            found[f"{module.name}.input_scale"] = np.array([scale], np.float32)
    for name, vector in parameters.vectors.items():
        if not name.endswith(".bias"):
            source, own = sources[name], np.empty_like(vector)
            own[source.outputs] = vector
            tensor = full_name(config, source)
            found[tensor] = own if source.wide else half(tensor, own)
    if result.attention is not None:
        query = full_name(config, sources[f"{lead}q"]).rsplit(".", 2)[0]
        for part in "qkv":
            value = getattr(result.attention, part)
            found[f"{query}.{part}_scale"] = np.array([value], np.float32)
    return found


def _bias(config: ModelConfig, module: FileModule, parameters: Parameters) -> Tensors:
    """The file's bias of a module's rows; {} without one."""
    bias = [parameters.vectors.get(f"{name}.bias") for name in module.parts]
    if bias[0] is None:
        return {}
    source = family_of(config).sources(config)[f"{module.parts[0]}.bias"]
    joined = np.concatenate([b for b in bias if b is not None])[module.order]
    tensor = full_name(config, source)
    return {tensor: half(tensor, joined.reshape(source.file_shape))}


def _outside(checkpoint: Weights) -> Tensors:
    """Tables, projections and the norm of embeddings, unchanged. `round_head` gives those of
    lm_head and its norm."""
    config = checkpoint.config
    sources = family_of(config).sources(config)
    found: Tensors = {}
    for name, source in sources.items():
        if name.startswith("embed."):
            found[full_name(config, source)] = checkpoint.table(name)
        elif name.startswith("embed_norm."):
            found[full_name(config, source)] = checkpoint.vector(name)
        elif name in ("project_in", "project_out"):
            found[full_name(config, source)] = np.ascontiguousarray(checkpoint.matrix(name).T)
    return found
