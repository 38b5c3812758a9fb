"""An adapter's weights under the model's canonical names, from a PEFT folder's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import AdapterError, ModelError
from lora_sdk.adapters.config import PeftConfig, load_peft_config
from lora_sdk.model.block import describe
from lora_sdk.model.config import family_of
from lora_sdk.model.container import RAW_TYPES, Container
from lora_sdk.model.half import to_half
from lora_sdk.model.source import Source

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

Half = NDArray[np.float16]
FILE = "adapter_model.safetensors"
LEAD = "base_model.model."


@dataclass(frozen=True)
class Module:
    """One adapted linear layer of the file. Each canonical tensor is a range of its outputs.

    `a` is FP16 [rank, inputs], `b` is FP16 [outputs, rank]. Of a block-diagonal A (`a_blocks` > 1)
    or B only the blocks are stored, packed as in PEFT: block i is the i-th chunk along dimension 0.
    Then `a` is [rank, inputs/a_blocks] and `b` is [outputs, rank/b_blocks]."""

    name: str
    rank: int
    scale: np.float32
    inputs: int
    outputs: int
    a: Half
    b: Half
    a_blocks: int
    b_blocks: int


@dataclass(frozen=True)
class Target:
    """A canonical tensor's outputs within its module: `count` outputs from `first` on, or those
    that `order` names, in that order."""

    module: Module
    first: int
    count: int
    order: tuple[int, ...] | None = None

    def outputs(self, columns: range) -> NDArray[np.intp]:
        """The module's outputs that are some columns of the tensor."""
        if self.order is None:
            return np.arange(self.first + columns.start, self.first + columns.stop)
        return np.array(self.order[columns.start : columns.stop], np.intp)


@dataclass(frozen=True)
class AdapterWeights:
    """A loaded adapter. `targets`: by canonical name ("layer.0.q"). `rank`: the max over modules.
    `blocks`: the number of blocks of a BD-LoRA adapter, else 1."""

    path: Path
    targets: Mapping[str, Target]
    rank: int
    blocks: int

    @property
    def bytes(self) -> int:
        """FP16 bytes of all factors, as stored in the folder."""
        modules = {id(t.module): t.module for t in self.targets.values()}
        return sum(module.a.nbytes + module.b.nbytes for module in modules.values())


def content_digest(weights: AdapterWeights) -> bytes:
    """SHA-256 of all that the adapter changes, on any number of boards."""
    digest = sha256()
    for name in sorted(weights.targets):
        target, module = weights.targets[name], weights.targets[name].module
        shape = (target.first, target.count, target.order, module.a.shape, module.b.shape)
        digest.update(ascii((name, *shape, module.a_blocks, module.b_blocks)).encode())
        for array in (module.scale, module.a, module.b):
            digest.update(array.tobytes())
    return digest.digest()


def load_adapter_weights(
    folder: str | Path, config: ModelConfig, factor: float = 1.0
) -> AdapterWeights:
    """Read a PEFT folder for a model. `factor` multiplies its scales. AdapterError names the field
    or tensor that is wrong, missing or not the model's."""
    folder = Path(folder)
    peft = load_peft_config(folder)
    try:
        return _load(folder, peft, config, factor)
    except ModelError as error:  # of the file itself
        raise AdapterError(str(error)) from None


def _load(folder: Path, peft: PeftConfig, config: ModelConfig, factor: float) -> AdapterWeights:
    linears = _linears(config)
    container = Container(folder / FILE)
    tensors, full = _by_module(container, linears, config)
    _check_targets(peft, linears, tensors, full, folder)
    targets: dict[str, Target] = {}
    for name, found in tensors.items():
        sources = linears[name]
        source = next(iter(sources.values()))
        module = _module(container, name, full[name], found, source, peft, factor)
        for canonical, source in sources.items():
            targets[canonical] = Target(module, source.first, source.count, source.order)
    if not targets:
        raise AdapterError(f"{folder / FILE}: it holds no adapter tensor")
    rank = max(target.module.rank for target in targets.values())
    blocks = max(max(t.module.a_blocks, t.module.b_blocks) for t in targets.values())
    return AdapterWeights(folder, targets, rank, blocks)


def _linears(config: ModelConfig) -> dict[str, dict[str, Source]]:
    """Module name without the model's prefix -> its canonical tensors' sources."""
    found: dict[str, dict[str, Source]] = {}
    adapted = {tensor for matmul in describe(config).adapted for tensor in matmul.tensors}
    for canonical, source in family_of(config).sources(config).items():
        if canonical in adapted:
            found.setdefault(source.tensor.removesuffix(".weight"), {})[canonical] = source
    return found


def _by_module(
    container: Container, linears: Mapping[str, object], config: ModelConfig
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Module -> {"A": tensor, "B": tensor}, and module -> its name as PEFT matches it."""
    prefixes = family_of(config).PREFIXES
    found: dict[str, dict[str, str]] = {}
    full: dict[str, str] = {}
    for tensor in container.entries:
        path, _, factor = tensor.removesuffix(".weight").rpartition(".lora_")
        name = path.removeprefix(LEAD)
        short = next((s for p in prefixes if (s := name.removeprefix(p)) in linears), None)
        if factor not in ("A", "B") or short is None or not tensor.endswith(".weight"):
            raise AdapterError(
                f"{tensor}: in {container.path}, but this model adapts no such tensor; expected "
                f"lora_A or lora_B of a layer's linear; the adapter is another model's, or adapts "
                "embeddings, lm_head, experts or their router, which is not supported"
            )
        found.setdefault(short, {})[factor] = tensor
        full[short] = name
    return found, full


def _check_targets(
    peft: PeftConfig,
    linears: Mapping[str, object],
    tensors: Mapping[str, Mapping[str, str]],
    full: Mapping[str, str],
    folder: Path,
) -> None:
    """Check that every linear layer that the configuration names has both factors, and no other
    has any."""
    for name, found in tensors.items():
        for factor in ("A", "B"):
            if factor not in found:
                missing = f"{LEAD}{full[name]}.lora_{factor}.weight"
                raise AdapterError(f"{missing}: missing from {folder}")
        if not peft.has(full[name]):
            raise AdapterError(
                f"{LEAD}{full[name]}.lora_A.weight: in {folder}, but not of target_modules; "
                "remove the tensor or add its module"
            )
    lead = next((full[name].removesuffix(name) for name in tensors), "")
    for name in linears:
        if name not in tensors and peft.has(lead + name):
            raise AdapterError(f"{LEAD}{lead}{name}.lora_A.weight: missing from {folder}")


def _module(
    container: Container,
    name: str,
    full: str,
    tensors: Mapping[str, str],
    source: Source,
    peft: PeftConfig,
    factor: float,
) -> Module:
    rows, columns = source.file_shape
    inputs, outputs = (rows, columns) if source.layout == "io" else (columns, rows)
    rank = peft.rank_of(full)
    side = peft.blocks.side(full) if peft.blocks is not None else None
    count = peft.blocks.count if peft.blocks is not None and side else 1
    a_blocks, b_blocks = (count if side == "a" else 1), (count if side == "b" else 1)
    for what, size in (("rank", rank), ("inputs", inputs if a_blocks > 1 else outputs)):
        if size % count:
            raise AdapterError(f"{full}: {what} {size} is not a multiple of nblocks {count}")
    shapes = {"A": (rank, inputs // a_blocks), "B": (outputs, rank // b_blocks)}
    values = {factor: _half(container, tensors[factor], shapes[factor]) for factor in ("A", "B")}
    scale = _scale(full, peft.scale_of(full) * factor)
    return Module(name, rank, scale, inputs, outputs, values["A"], values["B"], a_blocks, b_blocks)


def _scale(module: str, value: float) -> np.float32:
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise AdapterError(f"{module}: scale {value:g}, expected a number that FP32 can hold")
    scale: np.float32 = np.float32(value)
    return scale


def _half(container: Container, tensor: str, shape: tuple[int, int]) -> Half:
    entry = container.entries[tensor]
    if entry.shape != shape:
        raise AdapterError(
            f"{tensor}: shape {list(entry.shape)}, expected {list(shape)} by adapter_config.json "
            "and the model; the rank or the base model is another"
        )
    if entry.kind not in RAW_TYPES:
        raise AdapterError(f"{tensor}: dtype {entry.kind}, expected one of {', '.join(RAW_TYPES)}")
    return to_half(container.array(entry), entry.kind, tensor)
