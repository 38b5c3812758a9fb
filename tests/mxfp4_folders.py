"""Folders of GPT-OSS whose experts are MXFP4, as the model's makers write them: two tensors of
bytes for each matrix of all experts. The weights are known here by the format's definition."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.variants import Scale, Variant, write_checkpoint

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
KEPT = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
GROUP = 32

Weights = dict[str, NDArray[np.float64]]


def rounded(array: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """[.., outputs, inputs] as codes of four bits, [.., groups, 32], and E8M0 exponents."""
    groups = array.astype(np.float64).reshape(*array.shape[:-1], -1, GROUP)
    top = np.abs(groups).max(axis=-1)
    exponent = np.floor(np.log2(np.maximum(top, 2.0**-100))) - 2
    scaled = groups / 2.0 ** exponent[..., None]
    nearest = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(axis=-1)
    codes = nearest | (np.signbit(scaled) * 8)
    return codes.astype(np.uint8), (exponent + 127).astype(np.uint8)


def meaning(codes: NDArray[np.uint8], exponents: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The exact weights, [.., outputs, inputs]."""
    values = np.where(codes & 8, -1.0, 1.0) * E2M1[codes & 7]
    found = values * 2.0 ** (exponents.astype(np.float64)[..., None] - 127)
    return found.reshape(*codes.shape[:-2], -1)


def write_mxfp4(
    which: Variant, folder: Path, scale: Scale = "x3", lower: int = 0
) -> tuple[Path, Weights]:
    """The folder, and the exact weights [inputs, outputs] of each expert's matrix by the SDK's
    name. `lower`: is subtracted from every fourth exponent."""
    write_checkpoint(which, folder, scale)
    (path,) = folder.glob("*.safetensors")
    tensors, weights = dict(load_file(path)), Weights()
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        layer = name.split(".")[2]
        codes, exponents = rounded(tensors.pop(name).swapaxes(1, 2))
        exponents[..., ::4] -= np.uint8(lower)
        packed = codes[..., ::2] | codes[..., 1::2] << np.uint8(4)
        tensors[f"{name}_blocks"] = np.ascontiguousarray(packed)
        tensors[f"{name}_scales"] = exponents = np.ascontiguousarray(exponents)
        for expert, exact in enumerate(meaning(codes, exponents)):
            lead = f"layer.{layer}.expert.{expert}"
            if name.endswith("down_proj"):
                weights[f"{lead}.down"] = exact.T
            else:
                weights[f"{lead}.gate"], weights[f"{lead}.up"] = exact[::2].T, exact[1::2].T
    save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": KEPT}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, weights
