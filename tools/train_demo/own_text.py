"""Text that the target writes itself, for the drafts to learn from beside the corpus.

A draft is judged on the target's greedy text, which is plainer and more repetitive than source
files are; training on both raises its acceptance.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .corpus import Document
from .generate import continue_greedily, cut_prompts
from .plans import Plans


def write_own_text(
    model_folder: Path, tokenizer: Tokenizer, documents: list[Document], plans: Plans, path: Path
) -> int:
    """Continue prompts from `documents` greedily, save all as one stream, return its length."""
    from .adapters import load_reference

    prompts = cut_prompts(tokenizer, documents, plans.own_prompts, plans.own_prompt_length)
    texts = continue_greedily(
        load_reference(model_folder), prompts, plans.own_new_tokens, batch=128
    )
    stream = torch.tensor([token for text in texts for token in text.ids], dtype=torch.long)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"stream": stream}, path)
    return len(stream)


def mixed_stream(corpus_stream: torch.Tensor, path: Path, share: float) -> torch.Tensor:
    """The corpus with the own text repeated until it makes up about `share` of all tokens."""
    own = load_file(path)["stream"]
    target_length = len(corpus_stream) * share / (1.0 - share)
    return torch.cat([corpus_stream] + [own] * max(1, round(target_length / len(own))))
