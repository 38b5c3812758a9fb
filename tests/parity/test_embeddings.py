"""Final hidden states and embeddings beside transformers' own last hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk import Engine, demo_model_path
from tests.parity.reference import attention_kernel, fix_rotary
from tests.parity.score import error_limit, load_fixture, prompts
from tests.variants import VARIANTS, Variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]
PROMPT = [int(token) for token in np.arange(5, 140) * 7 % 4000]


def last_hidden(folder: Path, tokens: list[int]) -> NDArray[np.float32]:
    """transformers' [len(tokens), d], from weights rounded to FP16."""
    import torch
    import transformers

    torch.set_num_threads(1)
    kind: Any = {"dtype": torch.float32, "attn_implementation": attention_kernel(folder)}
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder, **kind).eval()
    fix_rotary(whole)
    seen: list[Any] = []
    whole.get_output_embeddings().register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(parameter.half().float())
        whole(input_ids=torch.tensor([tokens]))
    states: NDArray[np.float32] = seen[0][0].numpy()
    return states


def check(folder: Path, tokens: list[int], bound: float) -> None:
    states = last_hidden(folder, tokens).astype(np.float64)
    with Engine(folder, boards=2, embeddings=True) as engine:
        for pooling, theirs in (("last", states[-1]), ("mean", states.mean(0))):
            ours = engine.embed(tokens, pooling, False)
            assert ours.shape == theirs.shape
            assert np.abs(ours - theirs).max() < bound * theirs.std(), pooling
            unit = engine.embed(tokens, pooling)
            assert float(unit @ (theirs / np.linalg.norm(theirs))) > 1 - bound**2


@pytest.mark.parametrize("which", VARIANTS, ids=lambda which: which.name)
def test_states_of_every_family_are_near(which: Variant, tmp_path: Path) -> None:
    """lm_head's input there is lm_head's input here."""
    folder = write_checkpoint(which, tmp_path, "init")
    check(
        folder,
        [int(token) for token in prompts(which)[2]],
        2 * error_limit(load_fixture(which.name), "init"),
    )


def test_the_demo_models_embeddings_are_near() -> None:
    check(demo_model_path(), PROMPT, 0.02)
