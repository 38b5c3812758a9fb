"""How byte-level tokenizers split a text before they merge: a row for each name of
`tokenizer.ggml.pre` whose tokenizer is known exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+"


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Bytes as letters; with `use_regex` a text is split as GPT-2's is."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}  # fmt: skip


def _regex(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": False}  # fmt: skip
    return {"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]}


@dataclass(frozen=True)
class Split:
    """`pre_tokenizer` of tokenizer.json. `nfc`: texts are normalized. `whole_words`: a piece that
    is a token needs no merges. `bos`: what a file that does not say so adds."""

    pre_tokenizer: Mapping[str, Any]
    nfc: bool = False
    whole_words: bool = False
    bos: bool = False


_GPT2 = Split(byte_level(use_regex=True))
_LLAMA3 = Split(_regex(_WORDS + r"|\p{N}{1,3}" + _REST), whole_words=True, bos=True)
SPLITS: Mapping[str, Split] = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": Split(_regex(_WORDS + r"|\p{N}" + _REST), nfc=True),
}
