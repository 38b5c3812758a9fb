"""The strongest promise for every `model_type` of the registry: the oracle's bytes over boards,
kernels, cuts into steps and trees, in FP16, W8A8, also with dynamic activations, and W4A8."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import model_types
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import verify_tree
from tests.hybrid_configs import HYBRID_KINDS
from tests.latent_configs import LATENT_KINDS
from tests.moe_configs import MOE_KINDS
from tests.oracle.forward import Oracle, load_weights
from tests.quantized import SCHEMES, QuantizedModel
from tests.variants import VARIANTS, Variant, write_checkpoint

pytestmark = pytest.mark.slow

LENGTH = 36  # beyond a tile
ROOT = 30  # of a tree over the tile's edge
CUTS = (16, 1, 7)
BOARDS = (1, 2, 4, 8)
HEADS, HEAD_DIM = 8, 16
# Whole groups of 32 along every K; a field by any of its names, where the family has it.
SIZES = {
    ("hidden_size", "n_embd", "d_model", "n_embed"): HEADS * HEAD_DIM,
    ("num_attention_heads", "n_head", "n_heads"): HEADS,
    ("head_dim",): HEAD_DIM,
    ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"): 224,
    ("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"): 96,
    ("rotary_dim",): HEAD_DIM // 2,
    ("linear_num_key_heads",): HEADS // 2,
    ("linear_num_value_heads",): HEADS,
    ("linear_key_head_dim", "linear_value_head_dim"): HEAD_DIM,
    ("mamba_n_heads", "mamba_num_heads"): HEADS,
    ("mamba_d_head", "mamba_head_dim"): 2 * HEAD_DIM,
    ("mamba_n_groups", "n_groups"): HEADS // 4,
    ("mamba_d_ssm",): 2 * HEADS * HEAD_DIM,
    ("q_lora_rank",): 96,
    ("kv_lora_rank",): 64,
    ("vocab_size",): 293,
}
GROUPED = ("num_key_value_heads", "num_kv_heads")


def variant_of(kind: str) -> Variant:
    """A tiny model of the family; StopIteration: a family without a variant."""
    which = next(one for one in VARIANTS if one.config["model_type"] == kind)
    config = dict(which.config)
    for names, size in SIZES.items():
        config |= {name: size for name in names if name in config}
    shared = HEADS if kind in LATENT_KINDS else HEADS // 4
    config |= {name: shared for name in GROUPED if name in config}
    return replace(which, name=f"{which.name}/tiny", config=config)


QUANTIZED = ("w8a8", "w4a8", "w8a8_dynamic")
CASES = [
    (kind, scheme)
    for kind in model_types()
    for scheme in ("fp16", *QUANTIZED, *(["w4a16", "w4a8_dynamic"] if kind in MOE_KINDS else []))
]


@pytest.mark.parametrize(("kind", "scheme"), CASES)
def test_the_oracles_bytes(kind: str, scheme: str, tmp_path: Path) -> None:
    folder, tokens = write_checkpoint(variant_of(kind), tmp_path), tokens_of(LENGTH)
    model = None
    if scheme != "fp16":
        form = SCHEMES[scheme]
        if kind in HYBRID_KINDS:  # states need an FP16 cache
            form = replace(form, kv="fp16")
        model = QuantizedModel(folder, form)
        kinds = {one.kind for one in model.config.quantization.formats.values()}
        assert kinds == {
            form.kind,
            *({"int8"} if form.head != "fp16" else ()),
        }
        least = 4 if model.config.without_mixer else 6  # of each layer, on average
        assert len(model.matrices) > least * model.config.layers - 1
    want = wanted(folder, model, tokens)
    for boards in BOARDS:
        assert same(found(folder, boards, tokens, want, model), want)
    with open_runner(folder, 2, kernels="numpy", sequences=1, model=model) as runner:
        assert same(Driver(runner).feed(0, tokens[:5], (4, 1)), want[:5])


def tokens_of(count: int) -> list[int]:
    drawn: list[int] = np.random.default_rng(7).integers(0, SIZES["vocab_size",], count).tolist()
    return drawn


def wanted(folder: Path, model: QuantizedModel | None, tokens: list[int]) -> Logits:
    if model is not None:
        return model.oracle().logits(tokens)
    checkpoint = Checkpoint.open(folder)
    return Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens)


def found(
    folder: Path, boards: int, tokens: list[int], want: Logits, model: QuantizedModel | None
) -> Logits:
    """Logits on boards, step by step; before them a tree on 2 and 8 boards."""
    with open_runner(folder, boards, sequences=1, model=model) as runner:
        if boards in (2, 8):
            verify_tree(runner, tokens, want, ROOT)
        return Driver(runner).feed(0, tokens, CUTS)


def same(got: Logits, want: Logits) -> bool:
    """Compared outside an assertion, which would explain long bytes."""
    return got.tobytes() == want.tobytes()
