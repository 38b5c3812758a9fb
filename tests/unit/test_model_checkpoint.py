"""Weights by canonical name: slices, types, shards, old files; and what is wrong, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.container import MAX_HEADER, Container
from lora_sdk.model.half import to_half
from tests.variant_tensors import make_tensors
from tests.variants import VARIANTS, Variant, variant, write_checkpoint, write_weights


def tensors_of(which: Variant) -> dict[str, np.ndarray[Any, Any]]:
    return dict(make_tensors(which.name, which.config, which.prefix, 1.0))


def written(folder: Path, name: str, **changes: np.ndarray[Any, Any] | None) -> Path:
    """A variant's folder with tensors replaced, added, or (None) left out."""
    which = variant(name)
    write_checkpoint(which, folder)
    tensors = {**tensors_of(which), **changes}
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    kept = {key: array for key, array in tensors.items() if array is not None}
    write_weights(folder, kept, which.dtype, 1)
    return folder


@pytest.mark.parametrize("which", VARIANTS, ids=lambda which: which.name)
def test_every_tensor_of_the_file_is_reached(which: Variant, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(which, tmp_path))
    tensors = tensors_of(which).items()
    singles = ("e_score_correction_bias", "feed_forward.expert_bias")
    single = {name for name, _ in tensors if name.endswith(singles)}
    count = sum(array.size * (2 if name in single else 1) for name, array in tensors)
    assert checkpoint.bytes == 2 * count
    assert checkpoint.has("lm_head") and not checkpoint.has("layer.0.qkv")


def test_gpt2_cuts_the_fused_matrix(tmp_path: Path) -> None:
    which = variant("gpt2")
    checkpoint = Checkpoint.open(write_checkpoint(which, tmp_path))
    fused = tensors_of(which)["transformer.h.1.attn.c_attn.weight"]
    bias = tensors_of(which)["transformer.h.1.attn.c_attn.bias"]
    for part, name in enumerate("qkv"):
        first = part * 192
        found = checkpoint.matrix(f"layer.1.{name}", 32, 100)
        assert found.dtype == np.float16 and found.flags.c_contiguous
        assert np.array_equal(found, fused[:, first + 32 : first + 100])
        assert np.array_equal(checkpoint.vector(f"layer.1.{name}.bias"), bias[first : first + 192])
    assert checkpoint.shape("layer.1.q") == (192, 192)


def test_llama_matrices_are_turned_to_input_by_output(tmp_path: Path) -> None:
    which = variant("llama_gqa_tied")
    checkpoint = Checkpoint.open(write_checkpoint(which, tmp_path))
    raw = tensors_of(which)["model.layers.0.self_attn.k_proj.weight"]
    exact = (raw.view(np.uint32) & 0xFFFF0000).view(np.float32)  # the file is BF16
    assert checkpoint.shape("layer.0.k") == (192, 128)
    found = checkpoint.matrix("layer.0.k", 5, 70)
    assert np.array_equal(found, exact.astype(np.float16).T[:, 5:70]) and found.flags.c_contiguous
    head = checkpoint.matrix("lm_head", 7, 11)
    assert np.array_equal(head, checkpoint.rows("embed.token", 7, 11).T)
    assert np.array_equal(
        checkpoint.table("embed.token", 3, 9), checkpoint.rows("embed.token", 0, 330)[:, 3:9]
    )


def test_an_empty_share_is_legal(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(variant("llama_narrow"), tmp_path))
    assert checkpoint.matrix("layer.0.down", 48, 48).shape == (80, 0)
    assert checkpoint.table("embed.token", 0, 0).shape == (290, 0)


def test_a_range_outside_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(variant("llama_narrow"), tmp_path))
    with pytest.raises(ModelError, match=r"layer\.0\.down: columns 0\.\.49 requested of 48"):
        checkpoint.matrix("layer.0.down", 0, 49)
    with pytest.raises(ModelError, match=r"layer\.9\.q: no such tensor"):
        checkpoint.matrix("layer.9.q")
    with pytest.raises(ModelError, match="read as vector"):
        checkpoint.vector("layer.0.q")


K = "model.layers.0.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "are nan"),
        (np.inf, "are inf"),
        (65520.0, "65520 is out of FP16's range"),
        (-1e30, "-1e\\+30 is out of FP16's range"),
    ],
)
def test_bad_weights_name_the_tensor(tmp_path: Path, value: float, words: str) -> None:
    array = tensors_of(variant("llama"))[K].copy()
    array[100, 3] = value
    checkpoint = Checkpoint.open(written(tmp_path, "llama", **{K: array}))
    assert checkpoint.matrix("layer.0.k", 0, 100).shape == (144, 100)  # not read: not seen
    with pytest.raises(ModelError, match=f"{K}: .*{words}"):
        checkpoint.matrix("layer.0.k")


def test_the_largest_finite_weight_is_kept(tmp_path: Path) -> None:
    array = tensors_of(variant("llama"))[K].copy()
    array[0, 0], array[0, 1], array[0, 2] = 65519.9, 1 + 2**-11, 1 + 3 * 2**-11
    found = Checkpoint.open(written(tmp_path, "llama", **{K: array})).matrix("layer.0.k", 0, 1)
    assert found[0, 0] == 65504 and found[1, 0] == 1 and found[2, 0] == 1 + 2**-9  # nearest even


def test_conversion_in_chunks_equals_one_pass() -> None:
    values = np.linspace(-70, 70, 3 * 2**20, dtype=np.float32).reshape(3 * 2**10, 2**10)
    assert np.array_equal(to_half(values, "F32", "x"), values.astype(np.float16))
    assert np.array_equal(to_half(values[:, 5:77], "F32", "x"), values[:, 5:77].astype(np.float16))
    flat = values.reshape(-1)
    assert np.array_equal(to_half(flat, "F32", "x"), flat.astype(np.float16))


def test_missing_extra_and_misshapen_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"{K}: missing from .*expected shape \[144, 144\]"):
        Checkpoint.open(written(tmp_path / "a", "llama", **{K: None}))
    extra = {"model.layers.0.self_attn.k_proj.bias": np.zeros(144, np.float32)}
    with pytest.raises(ModelError, match=r"k_proj\.bias: in .* expected no other tensors"):
        Checkpoint.open(written(tmp_path / "b", "llama", **extra))
    with pytest.raises(ModelError, match=rf"{K}: shape \[144, 143\] .*expected \[144, 144\]"):
        Checkpoint.open(written(tmp_path / "c", "llama", **{K: np.zeros((144, 143), np.float32)}))
    with pytest.raises(ModelError, match=r"model\.embed_tokens\.weight: missing"):
        Checkpoint.open(written(tmp_path / "d", "llama", **{"model.embed_tokens.weight": None}))


def test_a_type_that_is_no_float_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path, "llama")
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[K]["dtype"] = "I32"
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + data[8 + length :]
    (folder / "model.safetensors").write_bytes(body)
    with pytest.raises(ModelError, match=rf"{K}: dtype I32 .*expected one of F32, F16, BF16"):
        Checkpoint.open(folder)


def test_a_header_of_too_many_names_is_refused_unread(tmp_path: Path) -> None:
    folder = written(tmp_path, "llama")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    length = int.from_bytes(data[:8], "little")
    for size in (MAX_HEADER, MAX_HEADER + 8):  # spaces at the end are part of it
        header = data[8 : 8 + length].ljust(size)
        weights.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
        if size == MAX_HEADER:
            assert Container(weights).entries
    with pytest.raises(ModelError, match=r"its header has 8388616 bytes; expected 8388608 at most"):
        Checkpoint.open(folder)


def test_a_tied_head_in_the_file_must_agree(tmp_path: Path) -> None:
    table = tensors_of(variant("gpt2"))["transformer.wte.weight"]
    same = Checkpoint.open(written(tmp_path / "a", "gpt2", **{"lm_head.weight": table}))
    assert same.matrix("lm_head").shape == (192, 515)
    other = table.copy()
    other[400, 7] += 1
    differs = Checkpoint.open(written(tmp_path / "b", "gpt2", **{"lm_head.weight": other}))
    with pytest.raises(ModelError, match=r"lm_head\.weight: differs from transformer\.wte"):
        differs.matrix("lm_head", 384, 416)


def test_a_tied_file_may_hold_only_the_head(tmp_path: Path) -> None:
    table = tensors_of(variant("gpt2"))["transformer.wte.weight"]
    changes = {"lm_head.weight": table, "transformer.wte.weight": None}
    checkpoint = Checkpoint.open(written(tmp_path, "gpt2", **changes))
    assert np.array_equal(checkpoint.table("embed.token"), table)


def test_buffers_of_old_files_are_ignored_by_name(tmp_path: Path) -> None:
    old = {
        name: np.zeros((1, 1, 4, 4), np.float32)
        for name in ("transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias")
    }
    Checkpoint.open(written(tmp_path / "a", "gpt2", **old))
    frequencies = {"model.layers.1.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32)}
    Checkpoint.open(written(tmp_path / "b", "llama", **frequencies))
    with pytest.raises(ModelError, match=r"h\.0\.attn\.other"):
        other = {"transformer.h.0.attn.other": np.zeros(4, np.float32)}
        Checkpoint.open(written(tmp_path / "c", "gpt2", **other))


def test_a_bias_of_the_choice_stays_fp32(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    bias = np.linspace(1, 2, 12, dtype=np.float32) * np.float32(1e5)
    bias[3] = np.float32(1 + 2**-23)
    found = Checkpoint.open(written(tmp_path, "glm4_moe", **{name: bias}))
    assert found.vector("layer.1.choice_bias").tobytes() == bias.tobytes()
    bias[3] = np.inf
    found = Checkpoint.open(written(tmp_path, "glm4_moe", **{name: bias}))
    with pytest.raises(ModelError, match=f"{name}: 1 weights are inf"):
        found.vector("layer.1.choice_bias")


def test_layers_behind_the_last_are_not_read(tmp_path: Path) -> None:
    """As many as the configuration says."""
    some = np.zeros((4, 4), np.float32)
    for name in ("eh_proj.weight", "mlp.experts.0.up_proj.weight", "shared_head.head.weight"):
        Checkpoint.open(written(tmp_path, "glm4_moe", **{f"model.layers.3.{name}": some}))
        extra = {f"model.layers.4.{name}": some}
        with pytest.raises(ModelError, match=r"model\.layers\.4\..*expected no other tensors"):
            Checkpoint.open(written(tmp_path, "glm4_moe", **extra))
    extra = {"model.layers.2.eh_proj.weight": some}
    with pytest.raises(ModelError, match=r"model\.layers\.2\..*expected no other tensors"):
        Checkpoint.open(written(tmp_path, "glm4_moe", **extra))
    with pytest.raises(ModelError, match=r"model\.layers\.2\."):  # num_nextn_predict_layers is 0
        Checkpoint.open(written(tmp_path, "glm4_moe_single", **extra))
