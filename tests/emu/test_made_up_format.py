"""A weight format registered from outside runs on 1, 2 and 4 boards, byte for byte the same and
near a float64 reference, and no file of the package knows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError, PlacementError
from lora_host.overlay import load_overlay
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.plan.overlay_choice import check_overlay, choose_overlay
from tests import made_up_format
from tests.commands import LORA, command
from tests.drive import Driver, Logits, open_runner
from tests.made_up_format import FILE, GROUP, METHOD
from tests.variants import variant, write_checkpoint

F64 = NDArray[np.float64]
TOKENS = np.random.default_rng(3).integers(3, 300, 45).tolist()
KEPT = "model.layers.1.self_attn.o_proj"  # stays FP16 beside the others
BOUND = 0.01  # of the logits' deviation


class Reference:
    """The forward pass of a Llama folder in float64, from its files' tensors alone."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._raw = load_file(folder / FILE)

    def logits(self, tokens: Sequence[int]) -> F64:
        """[len(tokens), vocabulary]."""
        x = self._tensor("model.embed_tokens.weight")[np.asarray(tokens)]
        for layer in range(self.config["num_hidden_layers"]):
            lead = f"model.layers.{layer}"
            x = x + self._attention(self._norm(x, f"{lead}.input_layernorm"), f"{lead}.self_attn")
            x = x + self._mlp(self._norm(x, f"{lead}.post_attention_layernorm"), f"{lead}.mlp")
        return self._linear(self._norm(x, "model.norm"), "lm_head")

    def _tensor(self, name: str) -> F64:
        return self._raw[name].astype(np.float64)

    def _norm(self, x: F64, name: str) -> F64:
        mean = np.square(x).mean(axis=1, keepdims=True)
        return x / np.sqrt(mean + self.config["rms_norm_eps"]) * self._tensor(f"{name}.weight")

    def _linear(self, x: F64, name: str) -> F64:
        if f"{name}.codes" not in self._raw:
            return x @ self._tensor(f"{name}.weight").T
        scales = 2.0 ** self._tensor(f"{name}.exponents")
        return x @ (self._tensor(f"{name}.codes") * np.repeat(scales, GROUP, axis=0))

    def _attention(self, x: F64, lead: str) -> F64:
        dim = self.config["head_dim"]
        q, k, v = (
            self._linear(x, f"{lead}.{part}_proj").reshape(len(x), -1, dim).transpose(1, 0, 2)
            for part in "qkv"
        )
        q, k = self._rotated(q), self._rotated(k)
        k, v = (np.repeat(part, len(q) // len(part), axis=0) for part in (k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(dim)
        scores[:, ~np.tril(np.ones(scores.shape[1:], bool))] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed = weights / weights.sum(axis=2, keepdims=True) @ v
        return self._linear(mixed.transpose(1, 0, 2).reshape(len(x), -1), f"{lead}.o_proj")

    def _rotated(self, x: F64) -> F64:
        """Rotary embedding of [heads, T, head_dim] by halves, positions scaled."""
        half = x.shape[2] // 2
        positions = np.arange(x.shape[1]) / self.config["rope_scaling"]["factor"]
        angles = positions[:, None] * self.config["rope_theta"] ** (-np.arange(half) / half)
        low, high = x[..., :half], x[..., half:]
        cosine, sine = np.cos(angles), np.sin(angles)
        return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=2)

    def _mlp(self, x: F64, lead: str) -> F64:
        gate, up = (self._linear(x, f"{lead}.{part}_proj") for part in ("gate", "up"))
        return self._linear(gate / (1 + np.exp(-gate)) * up, f"{lead}.down_proj")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A variant whose layers are in the format, but for one module."""
    root = tmp_path_factory.mktemp("made_up")
    plain = write_checkpoint(variant("llama_linear"), root / "plain", "x3")
    names = [name.removesuffix(".weight") for name in load_file(plain / FILE)]
    modules = [name for name in names if name.endswith("_proj") and name != KEPT]
    return made_up_format.rewrite(plain, root / "exponents", modules)


def logits(model: Path, boards: int, kernels: str = "native") -> Logits:
    with open_runner(model, boards, kernels=kernels, sequences=1) as runner:
        return Driver(runner).feed(0, TOKENS, (20, 1))


def test_boards_agree_to_the_byte_and_with_float64(folder: Path) -> None:
    expected = Reference(folder).logits(TOKENS)
    found = logits(folder, 1)
    assert np.abs(found - expected).max() < BOUND * expected.std()
    for boards, kernels in ((2, "native"), (4, "native"), (1, "numpy")):
        assert logits(folder, boards, kernels).tobytes() == found.tobytes()


def test_the_plan_follows_the_format(folder: Path) -> None:
    config = load_config(folder)
    assert config.quantization is not None
    formats = config.quantization.formats
    assert {form.kind for form in formats.values()} == {made_up_format.FORMAT.name}
    assert "layer.1.o" not in formats and len(formats) == 2 * 7 - 1
    assert choose_overlay(config, "u280") == "lora_f_u280"  # which computes W4A16
    with pytest.raises(PlacementError, match="is w4a16-exponents in groups of 32, which overlay"):
        check_overlay(config, load_overlay("lora_q_u280"))


def test_a_misshapen_tensor_is_named(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / FILE)
    name = "model.layers.0.mlp.down_proj.exponents"
    tensors[name] = np.ascontiguousarray(tensors[name][1:])
    save_file(tensors, tmp_path / FILE)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ModelError, match=r"mlp\.down_proj\.exponents: shape \[10, 128\]"):
        Checkpoint.open(tmp_path)


def test_without_its_file_the_folder_is_refused_by_name(folder: Path) -> None:
    refused = command(LORA, "plan", "--model", folder)
    assert refused.returncode == 1
    assert b"quant_method" in refused.stderr and METHOD.encode() in refused.stderr


def test_no_file_of_the_package_knows_the_format() -> None:
    root = Path(__file__).resolve().parents[2]
    for path in (*root.glob("sdk/**/*.py"), *root.glob("host/lora_host/**/*.py")):
        text = path.read_text(encoding="utf-8")
        assert f'"{METHOD}"' not in text and made_up_format.FORMAT.name not in text, path
