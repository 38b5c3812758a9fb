"""transformers' logits of a checkpoint: float32, from weights rounded to FP16, strictly loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def attention_kernel(folder: Path) -> str:
    """Which of transformers' attentions to compare with. Falcon's eager one adds ALiBi twice, to
    the scores and again with the mask."""
    import transformers

    kind = transformers.AutoConfig.from_pretrained(folder).model_type
    return "sdpa" if kind == "falcon" else "eager"


def reference_logits(folder: Path, prompts: Sequence[NDArray[Any]]) -> list[NDArray[np.float32]]:
    """FP32 [len, vocabulary] of each prompt, teacher-forced. AssertionError where transformers
    finds a tensor missing, extra or misshapen: the writer's names must be its own."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    new = tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 56)
    kernel = attention_kernel(folder)
    kind: dict[str, Any] = {"dtype" if new else "torch_dtype": torch.float32}
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation=kernel, **kind
    )
    ours = [key for key in report["unexpected_keys"] if "inv_freq" not in key]
    assert not report["missing_keys"] and not ours and not report["mismatched_keys"], report
    model.eval()
    results = []
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())
        for tokens in prompts:
            ids = torch.from_numpy(tokens.astype(np.int64))[None]
            results.append(model(input_ids=ids).logits[0].float().numpy())
    return results
