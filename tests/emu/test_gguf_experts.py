"""GGUF files of mixtures of experts: the folders' logits, and blocks as FP16 has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk import Engine
from lora_sdk.model import fields
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from tests.drive import Driver, open_runner
from tests.emu.test_every_family import tokens_of, variant_of
from tests.gguf_files import as_f16, matrices_as, write_gguf
from tests.latent_configs import LATENT_KINDS
from tests.moe_configs import MOE_KINDS
from tests.variants import Variant, write_checkpoint

KINDS = sorted(MOE_KINDS - {"glm4_moe"} - LATENT_KINDS)  # as GGUF these are refused

TOKENS = tokens_of(20)
# llama.cpp knows by the family whether the weights of experts are renormalized.
NORMS = {"qwen2_moe": False, "qwen3_moe": True, "olmoe": False}


def variant_as_converted(kind: str) -> Variant:
    which = variant_of(kind)
    norm = {"norm_topk_prob": NORMS[kind]} if kind in NORMS else {}
    norm |= {"swiglu_limit": 7.0} if kind == "gpt_oss" else {}  # which no key names
    return replace(which, config={**which.config, **norm})


def as_f32(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType.F32


@pytest.mark.parametrize("kind", KINDS)
def test_a_files_logits_are_its_folders(kind: str, tmp_path: Path) -> None:
    which = variant_as_converted(kind)
    folder = write_checkpoint(which, tmp_path / "folder", "x3")
    found = set()
    types = {"f16": as_f16, "f32": as_f32}
    files = [write_gguf(which, tmp_path / f"{n}.gguf", t, factor=3.0) for n, t in types.items()]
    for model in (folder, *files):
        with open_runner(model, 2, sequences=1) as runner:
            found.add(Driver(runner).feed(0, TOKENS, (16, 1)).tobytes())
    assert len(found) == 1
    own, read = load_config(folder), load_config(files[0])
    assert read.experts == own.experts and read.architecture == kind


@pytest.mark.parametrize(("kind", "blocks"), [("qwen2_moe", "Q8_0"), ("mixtral", "Q4_0"),
                                              ("granitemoeshared", "Q5_1")])  # fmt: skip
def test_experts_in_blocks_give_the_logits_of_fp16(kind: str, blocks: str, tmp_path: Path) -> None:
    """One row and several, boards and kernels."""
    path = write_gguf(variant_as_converted(kind), tmp_path / "a.gguf", matrices_as(blocks), 3.0)
    forms = {Checkpoint.open(path).config.quantization.format(f"layer.1.expert.2.{part}").kind  # type: ignore[union-attr]
             for part in ("gate", "up", "down")}  # fmt: skip
    assert forms == {blocks.lower()}
    found = set()
    for form, boards, kernels in (
        ("fp16", 1, "native"), ("blocks", 1, "native"), ("blocks", 4, "native"),
        ("blocks", 2, "numpy"),
    ):  # fmt: skip
        options = {"gguf_weights": form, "boards": boards, "kernels": kernels}
        with Engine(model=path, **options) as engine:  # type: ignore[arg-type]
            sequence = engine.open_sequence()
            logits = [engine.prefill(sequence, tokens) for tokens in ([5, 77, 200], [31])]
            assert all(np.isfinite(one).all() for one in logits)
            found.add(b"".join(one.tobytes() for one in logits))
            engine.check_weights()
    assert len(found) == 1


def test_a_gate_may_be_a_vector(tmp_path: Path) -> None:
    """As older converters wrote it."""
    which, written = variant_as_converted("qwen2_moe"), []
    add = gguf.GGUFWriter.add_tensor

    def squeezed(self, name, tensor, *more, **named):  # type: ignore[no-untyped-def]
        add(
            self,
            name,
            tensor[0] if "shexp" in name and len(tensor) == 1 else tensor,
            *more,
            **named,
        )

    for patched in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if patched:
                patch.setattr(gguf.GGUFWriter, "add_tensor", squeezed)
            path = write_gguf(which, tmp_path / f"{patched}.gguf")
        with open_runner(path, 1, sequences=1) as runner:
            written.append(Driver(runner).feed(0, TOKENS[:5], (5,)).tobytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_warned_of_that_the_file_has_not(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields._warned.clear()
    load_config(write_gguf(variant_as_converted(kind), tmp_path / "a.gguf"))
    assert "unknown fields" not in caplog.text


def test_mixtral_without_a_rotary_base_has_that_of_llama_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf.GGUFWriter, "add_rope_freq_base", lambda self, theta: None)
    path = write_gguf(variant_as_converted("mixtral"), tmp_path / "a.gguf")
    assert load_config(path).rope.theta == 10000  # type: ignore[union-attr]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_weights_scale(2.5)

    path = write_gguf(variant_as_converted("olmoe"), tmp_path / "a.gguf", more=more)
    with pytest.raises(
        ModelError, match=r"olmoe\.expert_weights_scale is 2\.5, expected no such key"
    ):
        load_config(path)
    which = variant_as_converted("qwen3_moe")
    config = {**which.config, "num_experts_per_tok": 9}
    path = write_gguf(replace(which, config=config), tmp_path / "b.gguf")
    with pytest.raises(ModelError, match="num_experts_per_tok is 9, expected an integer in 1"):
        load_config(path)
