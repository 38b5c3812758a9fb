"""`lora lab synth`: folders that our loader takes, that repeat, and that overwrite nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import safe_open

from lora_host.errors import ModelError, RequestError
from lora_lab.cli.synth import synth
from lora_lab.synth.folder import list_tensors, synthesize
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.shapes import SHAPES, find_config
from lora_sdk.quant.recipe import Recipe
from lora_sdk.text.tokenizer import Tokenizer

TINY = {
    "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 301,
             "eos_token_id": 300, "bos_token_id": 300},
    "opt": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 96,
            "max_position_embeddings": 64, "vocab_size": 301, "word_embed_proj_dim": 32,
            "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2},
    "llama": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
              "num_hidden_layers": 2, "intermediate_size": 96, "max_position_embeddings": 64,
              "vocab_size": 301, "tie_word_embeddings": False, "bos_token_id": 1,
              "eos_token_id": [2, 5]},
}  # fmt: skip


def config_file(folder: Path, kind: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **TINY[kind]}))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def tensors(folder: Path) -> dict[str, np.ndarray]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("kind", list(TINY))
def test_our_loader_takes_what_is_written(tmp_path: Path, kind: str, dtype: str) -> None:
    source = config_file(tmp_path / "source", kind)
    total = synthesize(source, tmp_path / "m", dtype=dtype)
    checkpoint = Checkpoint.open(tmp_path / "m")
    size = (tmp_path / "m" / "model.safetensors").stat().st_size
    assert total < size < total + 8192
    assert checkpoint.bytes * (2 if dtype == "F32" else 1) == total
    weights = checkpoint.matrix("layer.1.down").astype(np.float32)
    assert abs(weights.mean()) < 0.002 and 0.018 < weights.std() < 0.022
    assert (checkpoint.vector("layer.0.attn_norm.gamma") == 1).all()


@pytest.mark.parametrize("kind", list(TINY))
def test_every_token_is_text_and_text_is_tokens(tmp_path: Path, kind: str) -> None:
    synthesize(config_file(tmp_path / "source", kind), tmp_path / "m")
    config = load_config(tmp_path / "m")
    tokenizer = Tokenizer(tmp_path / "m", config.vocabulary)
    text = "def add(a, b):\n\treturn a + b  # ü 漢 \x00"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    special = {i for i in (*config.eos, config.bos, config.pad) if i is not None}
    for token in range(config.vocabulary):
        assert bool(tokenizer.decode([token])) == (token not in special), token
        assert tokenizer.token_text(token)


def test_equal_seeds_give_equal_files_whatever_the_shards(tmp_path: Path) -> None:
    source = config_file(tmp_path / "source", "llama")
    synthesize(source, tmp_path / "a", seed=5)
    synthesize(source, tmp_path / "b", seed=5)
    synthesize(source, tmp_path / "c", seed=6)
    synthesize(source, tmp_path / "d", seed=5, shards=4)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    a, c, d = (tensors(tmp_path / name) for name in "acd")
    assert a.keys() == c.keys() == d.keys()
    assert all(np.array_equal(a[name], d[name]) for name in a)
    assert not np.array_equal(a["lm_head.weight"], c["lm_head.weight"])
    assert len(list((tmp_path / "d").glob("model-0000*-of-00004.safetensors"))) == 4
    Checkpoint.open(tmp_path / "d")


def test_a_known_shape_is_written_as_published() -> None:
    """gpt2-xl's 1,557,611,200 and llama2-7b's 6,738,415,616 weights."""
    assert sum(t.elements for t in list_tensors(find_config("gpt2-xl"))) == 1_557_611_200
    assert sum(t.elements for t in list_tensors(find_config("llama2-7b"))) == 6_738_415_616
    names = [t.name for t in list_tensors(find_config("opt-6.7b"))]
    assert names[0] == "model.decoder.embed_tokens.weight" and len(set(names)) == len(names)


def test_nothing_is_overwritten_and_nothing_left_behind(tmp_path: Path) -> None:
    source = config_file(tmp_path / "source", "gpt2")
    for taken in (source.parent, source):
        with pytest.raises(RequestError, match="exists already"):
            synthesize(source, taken)
    for wrong in ({"dtype": "F8"}, {"shards": 0}, {"seed": -1}):
        with pytest.raises(RequestError):
            synthesize(source, tmp_path / "m", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ModelError):
        synthesize("gpt2-345", tmp_path / "m")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesize(source, tmp_path / "m", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    source = config_file(tmp_path / "source", "gpt2")
    folder = tmp_path / "m"
    answer = CliRunner().invoke(synth, [str(source), str(folder), "--dtype", "bf16"])
    assert answer.exit_code == 0 and "GB of" in answer.output and "measured" in answer.output
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "bfloat16"
    helped = CliRunner().invoke(synth, ["--help"]).output
    assert all(name in helped.replace("\n", " ") for name in SHAPES)


@pytest.mark.parametrize("kind", list(TINY))
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8", "w4a16"])
def test_quantized_folders_open(tmp_path: Path, kind: str, scheme: str) -> None:
    source = config_file(tmp_path / "source", kind)
    recipe = Recipe(scheme, group=32)
    total = synthesize(source, tmp_path / "m", recipe=recipe, shards=2)
    checkpoint = Checkpoint.open(tmp_path / "m")
    found = checkpoint.config.quantization
    assert found is not None and found.kv == "int8"
    assert found.format("lm_head").kind == "int8" and not checkpoint.config.tied
    form = found.format("layer.1.down")
    assert (form.kind, form.group) == {
        "w8a8": ("int8", None), "w4a8": ("w4a8", 32), "w4a16": ("w4a16", 32),
    }[scheme]  # fmt: skip
    assert found.format("project_in").kind == "fp16"
    k, n = checkpoint.shape("layer.1.down")
    if form.four_bit:
        four = checkpoint.columns("layer.1.down", 0, n)
        values = four.values.astype(float) - np.repeat(four.zeros, 32, axis=1)
        weights = values * np.repeat(four.scales.astype(float), 32, axis=1)
    else:
        eight = checkpoint.columns("layer.1.down", 0, n)
        weights = eight.values * eight.scales[:, None].astype(float)
    assert weights.shape == (n, k) and 0.01 < weights.std() < 0.04
    assert checkpoint.activation_scales().attention[1].k > 0
    files = sorted((tmp_path / "m").glob("*.safetensors"))
    assert total < sum(path.stat().st_size for path in files) < total + 24576


def test_groups_that_do_not_divide_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = config_file(tmp_path / "source", "llama")
    with pytest.raises(RequestError, match="K is 96, not a multiple of the group of 64"):
        synthesize(source, tmp_path / "m", recipe=Recipe("w4a8", group=64))
    assert not (tmp_path / "m").exists()
