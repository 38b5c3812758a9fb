"""Greedy text of the target, through transformers, from prompts cut from documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from .acceptance import Continuation
from .corpus import Document
from .tokenizer import END_OF_TEXT_ID, encode_text


def cut_prompts(
    tokenizer: Tokenizer, documents: Sequence[Document], count: int, length: int
) -> list[list[int]]:
    """At most `count` prompts of `length` ids, evenly spread, each after end-of-text."""
    prompts = []
    for document in documents:
        ids = encode_text(tokenizer, document.text)
        for start in range(0, len(ids) - length + 2, length):
            prompts.append([END_OF_TEXT_ID, *ids[start : start + length - 1]])
    step = max(1, len(prompts) // count)
    return prompts[::step][:count]


def continue_greedily(
    model: Any, prompts: Sequence[Sequence[int]], new_tokens: int, batch: int = 64
) -> list[Continuation]:
    """Continue prompts of equal length. A text ends before its first end-of-text."""
    texts = []
    for start in range(0, len(prompts), batch):
        ids = torch.tensor([list(prompt) for prompt in prompts[start : start + batch]])
        given = ids.shape[1]
        with torch.no_grad():
            rows = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=END_OF_TEXT_ID,
            ).tolist()
        for row in rows:
            end = row.index(END_OF_TEXT_ID, given) if END_OF_TEXT_ID in row[given:] else len(row)
            texts.append(Continuation(row[:end], given))
    return texts
