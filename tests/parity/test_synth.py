"""transformers opens what `lora lab synth` writes, every tensor used and none missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_lab.synth.folder import synthesize
from lora_sdk.model.checkpoint import Checkpoint
from tests.unit.test_synth import TINY, config_file

pytestmark = pytest.mark.parity


@pytest.mark.parametrize(("dtype", "shards"), [("F16", 1), ("BF16", 3)])
@pytest.mark.parametrize("kind", list(TINY))
def test_transformers_opens_it(
    parity_modules: tuple[Any, Any], tmp_path: Path, kind: str, dtype: str, shards: int
) -> None:
    torch, transformers = parity_modules
    folder = tmp_path / "m"
    synthesize(config_file(tmp_path / "source", kind), folder, dtype=dtype, shards=shards)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, torch_dtype=torch.float32
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    table = Checkpoint.open(folder).table("embed.token").astype(np.float32)
    theirs = model.get_input_embeddings().weight.detach().numpy()
    assert np.allclose(table, theirs, atol=2e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode("a b", add_special_tokens=False)) == "a b"
