"""Train the byte-level BPE tokenizer and write the files that transformers needs beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
"""One token both begins every text (the tokenizer adds it) and ends it."""


def train_tokenizer(texts: Iterable[str], entries: int = 4096) -> Tokenizer:
    """Train a byte-level BPE of `entries` entries; the same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        pair=f"{END_OF_TEXT} $A {END_OF_TEXT} $B",
        special_tokens=[(END_OF_TEXT, END_OF_TEXT_ID)],
    )
    return tokenizer


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] }}\n\n\n"
    '{% else %}"""{{ message[\'content\'] | trim }}"""\n\n{% endif %}{% endfor %}'
)
"""A base model of code: a message is a docstring, the answer the code that follows it."""


def tokenizer_config(positions: int) -> dict[str, object]:
    """Content of tokenizer_config.json: the fast tokenizer as it is, nothing added by class."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": positions,
        "chat_template": CHAT_TEMPLATE,
    }


def save_tokenizer(tokenizer: Tokenizer, folder: Path, positions: int) -> None:
    """Write tokenizer.json and tokenizer_config.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps(tokenizer_config(positions), indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text)


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of `text` without the leading end-of-text token."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
