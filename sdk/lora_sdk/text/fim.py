"""Text in the middle: the tokens that a model knows around what comes before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lora_sdk.text.tokenizer import Tokenizer

GIVEN = "fim_tokens"
"""Name under which a tokenizer's settings may have them: an object as of `_FORMS`."""
_MARKS = ("prefix", "suffix", "middle")
_FORMS: tuple[dict[str, str], ...] = (
    {"prefix": "<|fim_prefix|>", "suffix": "<|fim_suffix|>", "middle": "<|fim_middle|>",
     "repo": "<|repo_name|>", "file": "<|file_sep|>", "pad": "<|fim_pad|>",
     "end": "<|file_separator|>"},  # Qwen2.5-Coder; CodeGemma
    {"prefix": "<fim_prefix>", "suffix": "<fim_suffix>", "middle": "<fim_middle>",
     "pad": "<fim_pad>", "end": "<file_sep>"},  # StarCoder, Granite
    {"prefix": "<fim-prefix>", "suffix": "<fim-suffix>", "middle": "<fim-middle>",
     "pad": "<fim-pad>"},  # SantaCoder
    {"prefix": "<｜fim▁begin｜>", "suffix": "<｜fim▁hole｜>",  # noqa: RUF001
     "middle": "<｜fim▁end｜>"},  # DeepSeek  # noqa: RUF001
    {"prefix": "▁<PRE>", "suffix": "▁<SUF>", "middle": "▁<MID>", "end": "▁<EOT>"},  # Code Llama
    {"prefix": "<PRE>", "suffix": "<SUF>", "middle": "<MID>", "end": "<EOT>"},
    {"prefix": "<|code_prefix|>", "suffix": "<|code_suffix|>", "middle": "<|code_middle|>"},  # GLM
)  # fmt: skip


@dataclass(frozen=True)
class Fim:
    """Token ids. `repo` and `file` begin a repository's name and a file's, None where the model
    knows no other files. `ends` end what is in the middle."""

    prefix: int
    suffix: int
    middle: int
    repo: int | None
    file: int | None
    ends: tuple[int, ...]

    def around(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """The prompt for what is between two texts."""
        return [self.prefix, *prefix, self.suffix, *suffix, self.middle]


def fim_of(tokenizer: Tokenizer) -> Fim | None:
    """None where the tokenizer has no such tokens."""
    given = tokenizer.config.get(GIVEN)
    forms = (given, *_FORMS) if isinstance(given, dict) else _FORMS
    for form in forms:
        texts = {name: text for name, text in form.items() if isinstance(text, str)}
        ids = {name: tokenizer.token_id(text) for name, text in texts.items()}
        marks = [ids.get(name) for name in _MARKS]
        prefix, suffix, middle = marks
        if prefix is None or suffix is None or middle is None or len(set(marks)) < len(marks):
            continue
        others = [ids.get(name) for name in ("repo", "file", "pad", "end")]
        ends = tuple(one for one in others if one is not None)
        return Fim(prefix, suffix, middle, ids.get("repo"), ids.get("file"), ends)
    return None
