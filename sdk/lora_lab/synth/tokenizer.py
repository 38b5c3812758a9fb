"""A tokenizer for a model without one: it encodes any text and decodes every id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def write_tokenizer(folder: Path, config: ModelConfig) -> None:
    """Write tokenizer.json and tokenizer_config.json: tokens for bytes, then made-up words that are
    only decoded. The model's special ids stay special. A vocabulary too small for all bytes has the
    ASCII bytes first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special = special_names(config)
    names = _token_names()
    vocabulary = {special.get(i) or next(names): i for i in range(config.vocabulary)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special.values()])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    described: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for key, ids in (("bos", (config.bos,)), ("eos", config.eos), ("pad", (config.pad,))):
        if ids and ids[0] in special:
            described[f"{key}_token"] = special[ids[0]]
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")


def special_names(config: ModelConfig) -> dict[int, str]:
    """Id -> name of the model's special tokens within its vocabulary."""
    ids = [*config.eos, config.bos, config.pad]
    kept = dict.fromkeys(i for i in ids if i is not None and 0 <= i < config.vocabulary)
    return {i: f"<|special_{i}|>" for i in kept}


def _token_names() -> Iterator[str]:
    """The 256 bytes as byte-level tokenizers write them, ASCII first, then an endless list of
    words."""
    from tokenizers import pre_tokenizers

    yield from sorted(pre_tokenizers.ByteLevel.alphabet())
    for length in count(2):
        for letters in product(ascii_lowercase, repeat=length):
            yield "Ġ" + "".join(letters)  # a word with a space before it
