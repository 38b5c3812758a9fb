"""MXFP4 on boards: GPT-OSS's folders and GGUF files, exact weights at 4.25 bits, over boards,
kernels and batches; exponents at both ends; folders that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host import abi
from lora_host.emu import gguf_blocks
from lora_host.errors import LoraError, ModelError
from lora_sdk import Engine
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.weight_formats import weight_format
from tests.drive import Driver, Logits, open_runner
from tests.gguf_files import matrices_as, write_gguf
from tests.mxfp4_folders import write_mxfp4
from tests.oracle import Oracle, load_weights
from tests.variants import variant

NAMES = ("gpt_oss", "gpt_oss_single")
LENGTH = 36
Made = tuple[Path, Logits]


def tokens_of(vocabulary: int) -> list[int]:
    return [token % vocabulary for token in range(5, 5 + 37 * LENGTH, 37)]


def oracle_logits(folder: Path, weights: dict[str, Any]) -> Logits:
    """Of the exact weights, in FP16 where that holds them."""
    checkpoint = Checkpoint.open(folder)
    others = [name for name in checkpoint.names if name not in weights]
    halves = {name: exact.astype(np.float16) for name, exact in weights.items()}
    oracle = Oracle(checkpoint.config, {**load_weights(checkpoint, others), **halves})
    return oracle.logits(tokens_of(checkpoint.config.vocabulary))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Made]:
    @cache
    def of(name: str, lower: int) -> Made:
        folder, weights = write_mxfp4(variant(name), tmp_path_factory.mktemp(name), lower=lower)
        exact = np.concatenate([one.reshape(-1) for one in weights.values()])
        assert lower or (exact == exact.astype(np.float16)).all()
        return folder, oracle_logits(folder, weights)

    return of


@pytest.mark.parametrize(("name", "lower"), [*((name, 0) for name in NAMES), ("gpt_oss", 16)])
def test_boards_and_kernels_give_the_oracles_bytes(
    name: str, lower: int, made: Callable[[str, int], Made]
) -> None:
    """Exponents lowered by 16 are below what FP16 holds exactly."""
    folder, want = made(name, lower)
    tokens = tokens_of(variant(name).config["vocab_size"])
    for boards in (1, 2, 4):
        with open_runner(folder, boards, sequences=1) as runner:
            for placed in runner.plan.boards[0].matrices.values():
                if placed.spec.experts:
                    assert placed.spec.format.kind == "mxfp4"
                    weights = placed.spec.k * placed.spec.n * placed.spec.experts
                    assert placed.spec.bytes * 8 == weights * 4.25
            assert Driver(runner).feed(0, tokens, (16, 1, 7)).tobytes() == want.tobytes()
    with open_runner(folder, 2, kernels="numpy", sequences=1) as runner:
        assert Driver(runner).feed(0, tokens[:9], (4, 1)).tobytes() == want[:9].tobytes()


def test_a_batch_has_each_rows_bytes(made: Callable[[str, int], Made]) -> None:
    folder, want = made("gpt_oss", 0)
    tokens = tokens_of(variant("gpt_oss").config["vocab_size"])
    with open_runner(folder, 2, sequences=4) as runner:
        driver = Driver(runner)
        starts = {2: tokens[:20], 0: tokens[:13], 1: tokens[:11]}
        for number, got in driver.step(starts, interleave=True).items():
            assert got.tobytes() == want[: len(starts[number])].tobytes()


@pytest.mark.parametrize("mistake", ["values", "exponents"])
def test_a_mistake_is_seen(
    mistake: str, made: Callable[[str, int], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, want = made("gpt_oss", 0)
    if mistake == "values":  # 6 is taken for 5
        wrong = np.where(np.abs(gguf_blocks.E2M1) == 12, gguf_blocks.E2M1 / 1.2, gguf_blocks.E2M1)
        monkeypatch.setattr(gguf_blocks, "E2M1", wrong.astype(np.float32))
    else:
        own = gguf_blocks._scaling
        monkeypatch.setattr(
            gguf_blocks, "_scaling", lambda kind, rest: (own(kind, rest)[0] * np.float32(2), None)
        )
    with open_runner(folder, 1, kernels="numpy", sequences=1) as runner:
        tokens = tokens_of(variant("gpt_oss").config["vocab_size"])
        got = Driver(runner).feed(0, tokens[:4], (4,))
    assert got.tobytes() != want[:4].tobytes()


def changed(folder: Path, part: str, value: int, target: Path) -> Path:
    """A copy whose first byte of a layer's exponents or codes is another."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    (path,) = target.glob("*.safetensors")
    tensors = dict(load_file(path))
    name = f"model.layers.1.mlp.experts.down_proj_{part}"
    tensors[name].reshape(-1)[0] = value
    save_file(tensors, path)
    return target


@pytest.mark.parametrize("exponent", [141, 200, 255])
def test_exponents_beyond_fp16_are_refused(
    exponent: int, made: Callable[[str, int], Made], tmp_path: Path
) -> None:
    path = changed(made("gpt_oss", 0)[0], "scales", exponent, tmp_path / "a")
    with pytest.raises(LoraError, match=r"down_proj.*(65520|finite|range|nan|inf)"):
        open_runner(path, 1, sequences=1).__enter__()


def test_folders_that_are_refused(made: Callable[[str, int], Made], tmp_path: Path) -> None:
    folder = made("gpt_oss", 0)[0]
    path = changed(folder, "blocks", 0, tmp_path / "a") / "config.json"
    values = json.loads(path.read_text())
    for fields, words in (
        ({"modules_to_not_convert": "lm_head"}, "a list of names"),
        ({"modules_to_not_convert": ["*a*a*a*a*a*b"]}, "a list of names"),
        ({"modules_to_not_convert": ["model.layers.*.mlp.experts"]}, "that are converted"),
        ({"group_size": 32}, "no such field"),
    ):
        own = {**values["quantization_config"], **fields}
        path.write_text(json.dumps({**values, "quantization_config": own}))
        with pytest.raises(ModelError, match=words):
            Checkpoint.open(path.parent)
    del values["quantization_config"]
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match="gate_up_proj: missing"):
        Checkpoint.open(path.parent)


def test_experts_that_are_named_stay_as_they_are(tmp_path: Path) -> None:
    """A folder may keep some layers' experts in floats."""
    folder, _ = write_mxfp4(variant("gpt_oss"), tmp_path)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values["quantization_config"]["modules_to_not_convert"] += ["model.layers.2.mlp"]
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"layers\.2\.mlp\.experts\.\w+: missing"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("name", NAMES)
def test_files_of_llama_cpp_have_the_same_bytes_as_fp16(name: str, tmp_path: Path) -> None:
    path = write_gguf(variant(name), tmp_path / "a.gguf", matrices_as("MXFP4"), 3.0)
    form = Checkpoint.open(path).config.quantization
    assert form is not None and form.format("layer.1.expert.2.down").kind == "mxfp4"
    found = set()
    for weights, boards, kernels in (
        ("fp16", 1, "native"), ("blocks", 1, "native"), ("blocks", 4, "native"),
        ("blocks", 2, "numpy"),
    ):  # fmt: skip
        options = {"gguf_weights": weights, "boards": boards, "kernels": kernels}
        with Engine(model=path, **options) as engine:  # type: ignore[arg-type]
            sequence = engine.open_sequence()
            logits = [engine.prefill(sequence, tokens) for tokens in ([5, 77, 200], [31])]
            found.add(b"".join(one.tobytes() for one in logits))
    assert len(found) == 1


def test_blocks_hold_four_and_a_quarter_bits() -> None:
    form = weight_format("mxfp4")
    assert form.block_bytes(None) * 8 == 4.25 * abi.BLOCK_K * abi.BLOCK_N
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.MXFP4] == (32, form.gguf.bytes)  # type: ignore[union-attr]
