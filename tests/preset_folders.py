"""Small folders as llm-compressor's presets store them: a variant's linears rounded to the nearest,
in compressed-tensors' formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.variants import variant, write_checkpoint

F32 = NDArray[np.float32]
Stored = tuple[str, NDArray[Any]]  # safetensors' name of the type, and the raw elements
Edit = Callable[[dict[str, Stored]], object]
LINEAR = re.compile(r".*layers\.\d+\..*(_proj|fc1|fc2)\.weight")
TYPES = {"float32": "F32", "float16": "F16", "int8": "I8"}


def e4m3_grid() -> F32:
    """The 127 values from 0 that float8_e4m3fn has, by code."""
    tiny = [m * 2.0**-9 for m in range(8)]
    normal = [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)]
    return np.array((tiny + normal)[:127], np.float32)


def to_e4m3(x: F32) -> NDArray[np.uint8]:
    """The codes of the nearest values."""
    grid = e4m3_grid()
    above = np.clip(np.searchsorted(grid, np.abs(x)), 1, 126)
    code = np.where(np.abs(x) - grid[above - 1] <= grid[above] - np.abs(x), above - 1, above)
    return (code + 128 * (x < 0)).astype(np.uint8)


@dataclass(frozen=True)
class Preset:
    """`strategy` of the weights' scales, `size` of their groups or blocks; `form` is the format of
    compressed-tensors, `inputs` its `input_activations`."""

    form: str
    kind: str
    bits: int
    strategy: str
    inputs: dict[str, Any] | None
    size: tuple[int, ...] = ()
    symmetric: bool = True

    def weights(self) -> dict[str, Any]:
        """`weights` of config.json."""
        found: dict[str, Any] = {"num_bits": self.bits, "type": self.kind, "dynamic": False}
        found |= {"strategy": self.strategy, "symmetric": self.symmetric}
        if self.strategy == "group":
            found["group_size"] = self.size[0]
        if self.strategy == "block":
            found["block_structure"] = list(self.size)
        return found


def _inputs(kind: str, strategy: str, dynamic: bool, **more: Any) -> dict[str, Any]:
    same = {"num_bits": 8, "symmetric": True}
    return {**same, "type": kind, "strategy": strategy, "dynamic": dynamic, **more}


TOKEN = _inputs("int", "token", True)
TOKEN8 = _inputs("float", "token", True)
BLOCK8 = _inputs("float", "group", True, group_size=128)
PRESETS = {
    "fp8": Preset("float-quantized", "float", 8, "tensor", _inputs("float", "tensor", False)),
    "fp8_dynamic": Preset("float-quantized", "float", 8, "channel", TOKEN8),
    "fp8_block": Preset("float-quantized", "float", 8, "block", BLOCK8, (48, 40)),
    "w8a8": Preset("int-quantized", "int", 8, "channel", TOKEN),
    "w4a8": Preset("int-quantized", "int", 4, "group", TOKEN, (32,)),
    "w4afp8": Preset("int-quantized", "int", 4, "group", TOKEN8, (32,)),
}  # fmt: skip


def write_preset(
    name: str, preset: Preset, folder: Path, kv: bool = False, edit: Edit = dict
) -> Path:
    """The variant `name` in `folder`/plain and as the preset in `folder`/preset; `kv`: with static
    scales of K and V. `edit` may change the raw tensors by name."""
    plain = write_checkpoint(variant(name), folder / "plain", "x3")
    tensors: dict[str, Stored] = {}
    for key, array in load_file(plain / "model.safetensors").items():
        if LINEAR.fullmatch(key):
            for part, stored in _compressed(array.astype(np.float32), preset).items():
                tensors[f"{key.removesuffix('.weight')}.{part}"] = stored
        else:
            tensors[key] = (TYPES[array.dtype.name], array)
    config = json.loads((plain / "config.json").read_text())
    if kv:
        for layer in range(config["num_hidden_layers"]):
            for part in "kv":
                scale = ("F32", np.full(1, 0.01, np.float32))
                tensors[f"model.layers.{layer}.self_attn.{part}_scale"] = scale
    config["quantization_config"] = quantization_config(preset, kv)
    edit(tensors)
    return write_raw(folder / "preset", config, tensors)


def quantization_config(preset: Preset, kv: bool) -> dict[str, Any]:
    """As the library writes it."""
    group = {
        "targets": ["Linear"],
        "weights": preset.weights(),
        "input_activations": preset.inputs,
        "output_activations": None,
        "format": preset.form,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": preset.form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": _inputs("int", "tensor", False) if kv else None,
    }


def write_raw(folder: Path, config: dict[str, Any], tensors: dict[str, Stored]) -> Path:
    """A folder; NumPy has no FP8, so the library does not write it."""
    folder.mkdir(parents=True)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, (kind, array) in sorted(tensors.items(), key=lambda item: -item[1][1].itemsize):
        raw = np.ascontiguousarray(array).tobytes()
        span = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = len(text).to_bytes(8, "little") + text + bytes(data)
    (folder / "model.safetensors").write_bytes(file)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _compressed(weight: F32, preset: Preset) -> dict[str, Stored]:
    """The tensors of one module [out, in]."""
    scale, wide = _scales(weight, preset)
    stored: dict[str, Stored] = {"weight_scale": ("F32", scale)}
    if preset.kind == "float":
        stored["weight"] = ("F8_E4M3", to_e4m3(weight / wide))
    else:
        top = 2 ** (preset.bits - 1) - 1
        values = np.clip(np.rint(weight / wide), -top - 1, top)
        stored["weight"] = ("I8", values.astype(np.int8))
    if preset.inputs is not None and not preset.inputs["dynamic"]:
        stored["input_scale"] = ("F32", np.full(1, 0.02, np.float32))
    return stored


def _scales(weight: F32, preset: Preset) -> tuple[F32, F32]:
    """As stored, and repeated to every weight."""
    rows, k = weight.shape
    height, width = {
        "tensor": (rows, k),
        "channel": (1, k),
        "group": (1, preset.size[-1] if preset.size else k),
        "block": preset.size,
    }[preset.strategy]
    top = float(e4m3_grid()[-1]) if preset.kind == "float" else 2 ** (preset.bits - 1) - 1
    padded = np.pad(np.abs(weight), ((0, -rows % height), (0, -k % width)))
    blocks = padded.reshape(-(-rows // height), height, -(-k // width), width)
    scale = (blocks.max(axis=(1, 3)) / top).astype(np.float32)
    if preset.kind == "int" and preset.bits == 4:
        scale = scale.astype(np.float16).astype(np.float32)
    wide = np.repeat(np.repeat(scale, height, axis=0), width, axis=1)[:rows, :k]
    return (scale.reshape(1) if preset.strategy == "tensor" else scale), wide
