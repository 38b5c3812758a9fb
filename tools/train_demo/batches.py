"""Token streams and the windows cut from them for training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from .corpus import Document
from .tokenizer import END_OF_TEXT_ID, encode_text


def token_stream(tokenizer: Tokenizer, documents: Sequence[Document]) -> torch.Tensor:
    """All documents as one int64 stream, each followed by the end-of-text token."""
    ids: list[int] = []
    for document in documents:
        ids.extend(encode_text(tokenizer, document.text))
        ids.append(END_OF_TEXT_ID)
    return torch.tensor(ids, dtype=torch.long)


class Windows:
    """Random windows of a stream, each behind an end-of-text token as every prompt is."""

    def __init__(self, stream: torch.Tensor, seed: int) -> None:
        self.stream = stream
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and next tokens, each [count, length]; inputs[:, 0] is end-of-text."""
        last = len(self.stream) - length
        starts = torch.randint(0, last + 1, (count, 1), generator=self.generator)
        targets = self.stream[starts + torch.arange(length)]
        inputs = targets.roll(1, dims=1)
        inputs[:, 0] = END_OF_TEXT_ID
        return inputs, targets
