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


def fix_rotary(model: Any) -> None:
    """Longrope and dynamic NTK as for the model's longest context, whatever the prompt's length, by
    transformers' own functions."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for module in model.modules():
        kind = getattr(module, "rope_type", None)
        if kind not in ("dynamic", "longrope"):
            continue
        given = model.config.rope_parameters
        positions = model.config.max_position_embeddings
        longest = int(positions * given["factor"]) if kind == "dynamic" else positions
        module.inv_freq, _ = ROPE_INIT_FUNCTIONS[kind](model.config, "cpu", seq_len=longest)
        module.rope_type = "default"  # or the first prompt would replace them


def note_routes(model: Any, margins: list[NDArray[np.float32]]) -> None:
    """Appends, for each router and prompt, how far the last expert that a row chooses is before the
    next one, in parts of the deviation of the router's logits, or of its sigmoids, where the last
    group that a row takes counts alike: FP32 [len]."""

    def note(module: Any, arguments: Any, found: Any) -> None:
        logits = (arguments[0].reshape(-1, module.weight.shape[1]) @ module.weight.T).numpy()
        bias = getattr(module, "bias", None)  # GPT-OSS
        logits = logits if bias is None else logits + bias.numpy()
        if getattr(module, "topk_method", "greedy") == "greedy":
            order = np.sort(logits, axis=1)
            margins.append((order[:, -module.top_k] - order[:, -module.top_k - 1]) / logits.std())
        else:
            margins.append(in_groups(module, logits, 1) / logits.std())

    def note_sigmoid(module: Any, arguments: Any, found: Any) -> None:
        scores = found[0].sigmoid().numpy()
        choice = scores + module.e_score_correction_bias.numpy()
        margins.append(in_groups(module, choice, 2) / scores.std())

    def in_groups(module: Any, choice: Any, count: int) -> Any:
        """Of a choice in groups, which their `count` largest are taken by."""
        groups = choice.reshape(len(choice), module.num_group, -1)
        best = np.sort(groups, axis=2)[..., -count:].sum(axis=2)
        order, margin = np.sort(best, axis=1), np.inf
        if module.topk_group < module.num_group:
            margin = order[:, -module.topk_group] - order[:, -module.topk_group - 1]
        limit = order[:, -module.topk_group][:, None]
        inside = np.where((best >= limit)[..., None], groups, -np.inf).reshape(choice.shape)
        order = np.sort(inside, axis=1)
        own = order[:, -module.top_k] - order[:, -module.top_k - 1]
        return np.minimum(margin, own)

    def note_biased(module: Any, arguments: Any, found: Any) -> None:
        scores = found[0].sigmoid().numpy()
        order = np.sort(scores + arguments[1].numpy(), axis=1)
        margins.append((order[:, -module.top_k] - order[:, -module.top_k - 1]) / scores.std())

    for module in model.modules():
        name = type(module).__name__.lower()
        if name.endswith("topkrouter"):
            by_sigmoid = hasattr(module, "e_score_correction_bias")
            biased = note_biased if hasattr(module, "use_expert_bias") else note
            module.register_forward_hook(note_sigmoid if by_sigmoid else biased)


def reference_logits(
    folder: Path,
    prompts: Sequence[NDArray[Any]],
    fixed: bool = True,
    margins: list[NDArray[np.float32]] | None = None,
    half: bool = False,
) -> list[NDArray[np.float32]]:
    """FP32 [len, vocabulary] of each prompt, teacher-forced. AssertionError where transformers
    finds a tensor missing, extra or misshapen: the writer's names must be its own. `fixed`: rotary
    positions as for the longest context, else as for each prompt. `margins` takes those of routers,
    prompt by prompt. `half` computes in float16."""
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
    if fixed:
        fix_rotary(model)
    if margins is not None:
        note_routes(model, margins)
    results = []
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())
        if half:
            model.half()
        for tokens in prompts:
            ids = torch.from_numpy(tokens.astype(np.int64))[None]
            results.append(model(input_ids=ids).logits[0].float().numpy())
    return results
