"""A family that is one file of the tests: the same bytes over boards and kernels, near a float64
model written here from the file's own tensors; with an adapter, and quantized."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config, register_family
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantized import ReorderedMatrix
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from tests import made_up_family
from tests.calibrated import random_windows
from tests.drive import Driver, Logits, open_runner
from tests.oracle import Oracle, load_weights
from tests.variant_tensors import normal
from tests.variant_tokenizer import make_tokenizer
from tests.variants import write_container

F64 = NDArray[np.float64]
BOUND = 0.013  # of the logits' deviation, as for weights of this size in tests/parity/score.py
BASE = {
    "model_type": made_up_family.NAME,
    "width": 144, "heads": 6, "kv_heads": 2, "inner": 320, "depth": 2, "vocab_size": 299,
    "positions": 256, "rotary_dim": 8, "use_parallel_residual": True,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "one_norm": BASE,
    "two_norms_fused": {
        **BASE, "two_norms": True, "fused_qkv": True, "width": 160, "heads": 5, "kv_heads": 5,
    },
    "tied": {**BASE, "tie_word_embeddings": True, "rotary_dim": 24},
}  # fmt: skip
LENGTH = 70


def tensors_of(config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    d, ffn, vocabulary = config["width"], config["inner"], config["vocab_size"]
    size = d // config["heads"]
    shapes: dict[str, tuple[int, ...]] = {"net.wte.weight": (vocabulary, d), "net.ln_f": (d,)}
    for layer in range(config["depth"]):
        lead, kv = f"net.h.{layer}", config["kv_heads"] * size
        shapes[f"{lead}.ln_1"] = (d,)
        if config.get("two_norms"):
            shapes[f"{lead}.ln_2"] = (d,)
        parts = {"attn.out": (d, d), "mlp.fc_in": (ffn, d), "mlp.fc_out": (d, ffn)}
        if config.get("fused_qkv"):
            parts["attn.qkv"] = (3 * d, d)
        else:
            parts |= {"attn.q": (d, d), "attn.k": (kv, d), "attn.v": (kv, d)}
        shapes |= {f"{lead}.{part}": shape for part, shape in parts.items()}
    shapes["lm_head"] = (vocabulary, d)
    found = {}
    for name, shape in shapes.items():
        if name == "net.wte.weight":
            found[name] = half(name, shape, 0.18)
            continue
        found[f"{name}.bias"] = half(f"{name}.bias", shape[:1], 0.18)
        if len(shape) == 1:
            found[f"{name}.weight"] = (1 + half(name, shape, 0.1)).astype(np.float16)
        elif not (name == "lm_head" and config.get("tie_word_embeddings")):
            found[f"{name}.weight"] = half(name, shape, 0.06)
    return {name: value.astype(np.float32) for name, value in found.items()}


def half(name: str, shape: tuple[int, ...], deviation: float) -> NDArray[Any]:
    draw = normal(name, int(np.prod(shape))) * deviation
    return draw.astype(np.float16).reshape(shape)


def write(folder: Path, name: str) -> Path:
    config = CONFIGS[name]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    make_tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    (folder / "model.safetensors").write_bytes(write_container(tensors_of(config), "F16"))
    return folder


class Reference:
    """The model in float64, from the file's tensors; `more` is added to its weights."""

    def __init__(self, config: Mapping[str, Any], more: Mapping[str, F64] | None = None) -> None:
        self.config = config
        self.tensors = {n: t.astype(np.float64) for n, t in tensors_of(config).items()}
        if config.get("tie_word_embeddings"):
            self.tensors["lm_head.weight"] = self.tensors["net.wte.weight"]
        for name, delta in (more or {}).items():
            self.tensors[name] = self.tensors[name] + delta

    def logits(self, tokens: list[int]) -> F64:
        x = self.tensors["net.wte.weight"][tokens]
        for layer in range(self.config["depth"]):
            lead = f"net.h.{layer}"
            first = self.norm(x, f"{lead}.ln_1")
            second = self.norm(x, f"{lead}.ln_2") if self.config.get("two_norms") else first
            x = x + self.attention(first, lead) + self.mlp(second, lead)
        return self.linear(self.norm(x, "net.ln_f"), "lm_head")

    def linear(self, x: F64, name: str) -> F64:
        found: F64 = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return found

    def norm(self, x: F64, name: str) -> F64:
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)
        found: F64 = x * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]
        return found

    def mlp(self, x: F64, lead: str) -> F64:
        up = self.linear(x, f"{lead}.mlp.fc_in")
        inner = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        return self.linear(inner, f"{lead}.mlp.fc_out")

    def attention(self, x: F64, lead: str) -> F64:
        heads, kv_heads = self.config["heads"], self.config["kv_heads"]
        size = self.config["width"] // heads
        if self.config.get("fused_qkv"):
            parts = self.linear(x, f"{lead}.attn.qkv").reshape(len(x), heads, 3, size)
            q, k, v = (parts[:, :, i] for i in range(3))
        else:
            q = self.linear(x, f"{lead}.attn.q").reshape(len(x), heads, size)
            k, v = (
                self.linear(x, f"{lead}.attn.{part}").reshape(len(x), kv_heads, size)
                for part in "kv"
            )
        q, k = self.rotated(q), self.rotated(k)
        mixed = np.empty_like(q)
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / np.sqrt(size)
            scores[~np.tri(len(x), dtype=bool)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, group]
        return self.linear(mixed.reshape(len(x), -1), f"{lead}.attn.out")

    def rotated(self, x: F64) -> F64:
        """Columns 0..rotary_dim-1 of heads [T, heads, size]: neighbours, or halves where fused."""
        width, y = self.config["rotary_dim"], x.copy()
        angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        if self.config.get("fused_qkv"):
            left, right = slice(0, width // 2), slice(width // 2, width)
        else:
            left, right = slice(0, width, 2), slice(1, width, 2)
        y[..., left] = x[..., left] * cos - x[..., right] * sin
        y[..., right] = x[..., right] * cos + x[..., left] * sin
        return y


def tokens_of(config: Mapping[str, Any]) -> list[int]:
    draw: list[int] = np.random.default_rng(4).integers(0, config["vocab_size"], LENGTH).tolist()
    return draw


def on_boards(folder: Path, boards: int, tokens: list[int], kernels: str = "native") -> Logits:
    with open_runner(folder, boards, kernels=kernels) as runner:
        return Driver(runner).feed(0, tokens, (33, 1, 7))


def off_by(found: Logits, wanted: F64) -> float:
    return float(np.abs(found - wanted).max() / wanted.std())


@pytest.mark.parametrize("name", CONFIGS)
def test_boards_and_kernels_agree_and_are_near_float64(name: str, tmp_path: Path) -> None:
    folder, config = write(tmp_path / name, name), CONFIGS[name]
    tokens = tokens_of(config)
    one = on_boards(folder, 1, tokens)
    assert off_by(one, Reference(config).logits(tokens)) < BOUND
    for boards in (2, 4):
        assert on_boards(folder, boards, tokens).tobytes() == one.tobytes()
    for boards in (1, 2):
        numpy = on_boards(folder, boards, tokens[:20], "numpy")
        assert numpy.tobytes() == on_boards(folder, boards, tokens[:20]).tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_sums_are_rounded_one_after_the_other(name: str, tmp_path: Path) -> None:
    """FP16(FP16(x + attention) + MLP): the bytes of an implementation that spells it out."""
    folder, config = write(tmp_path / name, name), CONFIGS[name]
    checkpoint = Checkpoint.open(folder)
    wanted = Oracle(checkpoint.config, load_weights(checkpoint))
    tokens = tokens_of(config)[:24]
    assert on_boards(folder, 2, tokens).tobytes() == wanted.logits(tokens).tobytes()


def write_adapter(folder: Path, config: Mapping[str, Any], blocks: int) -> dict[str, F64]:
    """A PEFT folder of rank 8 on every linear, with B in blocks where `blocks` > 1, and what it
    adds to the weights of each."""
    rank, tensors, added = 8, {}, {}
    linears = {
        name: tensor.shape
        for name, tensor in tensors_of(config).items()
        if name.startswith("net.h.") and tensor.ndim == 2
    }
    for name, (outputs, inputs) in linears.items():
        module = name.removesuffix(".weight")
        count = blocks if ".attn.q" in module else 1
        a, b = (
            half(f"{name}.A", (rank, inputs), 0.06),
            half(f"{name}.B", (outputs, rank // count), 0.06),
        )
        lead = f"base_model.model.{module}.lora_"
        tensors |= {
            f"{lead}A.weight": a.astype(np.float32),
            f"{lead}B.weight": b.astype(np.float32),
        }
        dense = np.zeros((outputs, rank))
        for block in range(count):
            rows = slice(block * outputs // count, (block + 1) * outputs // count)
            columns = slice(block * rank // count, (block + 1) * rank // count)
            dense[rows, columns] = b[rows]
        added[name] = 2 * dense @ a.astype(np.float64)
    peft = {
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "fan_in_fan_out": False,
        "target_modules": sorted({name.split(".")[-2] for name in linears}),
        "use_bdlora": None if blocks == 1 else {
            "target_modules_bd_a": [], "target_modules_bd_b": [".attn.q"], "nblocks": blocks,
            "match_strict": False,
        },
    }  # fmt: skip
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(peft))
    (folder / "adapter_model.safetensors").write_bytes(write_container(tensors, "F32"))
    return added


@pytest.mark.parametrize(
    ("name", "blocks"), [("one_norm", 1), ("one_norm", 4), ("two_norms_fused", 4)]
)
def test_an_adapter_meets_the_reordered_columns(name: str, blocks: int, tmp_path: Path) -> None:
    """Four blocks of B on five or six heads: blocks end within a head."""
    folder, config = write(tmp_path / name, name), CONFIGS[name]
    added = write_adapter(tmp_path / "adapter", config, blocks)
    tokens = tokens_of(config)[:33]
    wanted = Reference(config, added).logits(tokens)
    assert off_by(np.float32(wanted), Reference(config).logits(tokens)) > 20 * BOUND
    found = []
    for boards, mode in ((1, "auto"), (2, "auto"), (4, "auto"), (4, "s")):
        options = AdapterOptions(slots=1, max_rank=8, mode=mode)
        with open_runner(folder, boards, adapters=options) as runner:
            held = AdapterSlots(runner.cluster, runner.plan)
            held.load("one", tmp_path / "adapter")
            held.attach(0, "one")
            driver = Driver(runner)
            driver.adapters[0] = held.slot_of(0)
            found.append(driver.feed(0, tokens, (16, 1)))
    assert off_by(found[0], wanted) < BOUND
    assert {logits.tobytes() for logits in found} == {found[0].tobytes()}


@pytest.mark.parametrize(
    ("name", "scheme", "kv"),
    [("one_norm", "w8a8", "int8"), ("two_norms_fused", "w4a16", "int8-heads"),
     ("two_norms_fused", "w8a8", "fp16")],
)  # fmt: skip
def test_it_can_be_quantized(name: str, scheme: str, kv: KvKind, tmp_path: Path) -> None:
    """The quantized folder holds the file's own order again, and a shared input one scale."""
    plain, config = write(tmp_path / name, name), CONFIGS[name]
    windows = random_windows(config["vocab_size"])
    recipe = Recipe(scheme, group=32, kv=kv)
    quantize(plain, tmp_path / "quantized", recipe, windows)
    wanted = Reference(config).logits(windows[0])
    found = [on_boards(tmp_path / "quantized", boards, windows[0]) for boards in (1, 2, 4)]
    assert np.sqrt(np.square(found[0] - wanted).mean()) < 0.15 * wanted.std()
    assert {logits.tobytes() for logits in found} == {found[0].tobytes()}


@pytest.mark.parametrize(("name", "scheme"), [("one_norm", "w8a8"), ("two_norms_fused", "w4a16")])
def test_quantized_columns_come_in_the_models_order(name: str, scheme: str, tmp_path: Path) -> None:
    plain, config = write(tmp_path / name, name), CONFIGS[name]
    recipe = Recipe(scheme, group=32, kv="fp16", method="nearest", smooth=False)
    quantize(plain, tmp_path / "quantized", recipe, random_windows(config["vocab_size"]))
    exact, found = Checkpoint.open(plain), Checkpoint.open(tmp_path / "quantized")
    for part in "qkv":
        wanted = exact.matrix(f"layer.1.{part}").astype(np.float64)
        whole = found.columns(f"layer.1.{part}").dense()
        assert np.sqrt(np.square(whole.T - wanted).mean()) < 0.15 * wanted.std()
        some = found.columns(f"layer.1.{part}", 5, 43).dense()
        assert some.tobytes() == whole[5:43].tobytes()


def test_scales_of_columns_come_in_the_same_order(tmp_path: Path) -> None:
    """lm_head has a scale an output."""
    plain = write(tmp_path / "plain", "one_norm")
    quantize(plain, tmp_path / "quantized", Recipe("w8a8"), random_windows(299))
    head = Checkpoint.open(tmp_path / "quantized")._quantized_matrix("lm_head")
    order = np.random.default_rng(1).permutation(head.shape[1])
    found = ReorderedMatrix(head, "lm_head", order)
    scales, whole = found.column_scales(9, 60), head.column_scales(0, head.shape[1])
    assert scales is not None and whole is not None
    assert np.array_equal(scales, whole[order[9:60]]) and np.ptp(scales) > 0
    part = found.part(9, 60)
    wanted = head.columns(0, head.shape[1]).take(order[9:60]).part("lm_head")
    assert part.data.tobytes() == wanted.data.tobytes()


def test_the_package_does_not_know_it() -> None:
    root = Path(made_up_family.__file__).parents[1]
    for folder in ("sdk", "host"):
        for path in (root / folder).rglob("*.py"):
            assert made_up_family.NAME not in path.read_text(encoding="utf-8"), path


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ModelError, match="model_type 'gpt2' is registered already"):
        register_family("gpt2", made_up_family.FAMILY)


def test_what_the_family_does_not_read_is_still_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "one_norm")
    values = {**CONFIGS["one_norm"], "alibi": True}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match="alibi is True: ALiBi: not supported"):
        load_config(folder)
