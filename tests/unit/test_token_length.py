"""What a token can stand for: no text has fewer tokens than the bound says."""

from __future__ import annotations

import json
import unicodedata
from random import Random
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from lora_sdk import demo_model_path
from lora_sdk.text.token_length import longest_token
from lora_sdk.text.tokenizer import Tokenizer
from tests.random_tokens import SEQUENCES

BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
LETTERS = {one: index for index, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
HARD = ("\u212a", "\u2126\u0301", "\u03b9\u0308\u0301", "\u1fbe\u0308\u0301", "\u1100\u1161\u11a8",
        "\ufb03", "\U0001d400", " ", "▁", "\0", "a", "aa")  # fmt: skip


def byte_level(**more: Any) -> Backend:
    """As GPT-2: bytes, and two longer pieces."""
    made = Backend(models.BPE({**LETTERS, "aa": 300, "aaaa": 301}, [("a", "a"), ("aa", "aa")]))
    made.pre_tokenizer = more.get("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False))
    if "normalizer" in more:
        made.normalizer = more["normalizer"]
    made.add_tokens(more.get("added", []))
    return made


def fallback(normalizer: Any, **fields: Any) -> Backend:
    """As Llama 2: characters, and bytes for those that have no piece."""
    pieces = {**BYTES, "<unk>": 256, "a": 257, "▁": 258, "aa": 259, "▁▁": 260}
    fields = {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True, **fields}
    made = Backend(models.BPE(pieces, [("a", "a"), ("▁", "▁")], **fields))
    made.normalizer = normalizer
    return made


def sequence(*parts: Any) -> Any:
    return normalizers.Sequence(list(parts))


SPLIT = r"\p{L}+|\s+(?!\S)|\s+"
BOUNDED: dict[str, tuple[Backend, int]] = {
    "gpt2": (byte_level(), 5),
    "llama3": (byte_level(pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])), 5),
    "qwen": (byte_level(normalizer=normalizers.NFC()), 17),
    "added": (byte_level(added=[AddedToken("<|a long token|>")]), 17),
    "llama2": (fallback(sequence(normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"))), 7),
    "nfd": (fallback(normalizers.NFD()), 25),
    "nfkd": (fallback(normalizers.NFKD()), 25),
    "shorter": (fallback(normalizers.Replace("aaaa", "▁")), 9),
    "unknown ones": (fallback(sequence(), byte_fallback=False, fuse_unk=False), 7),
}  # fmt: skip
UNBOUNDED: dict[str, Backend] = {
    "characters without a piece go": Backend(models.BPE({"a": 0}, [])),
    "unknown ones are one": fallback(sequence(), byte_fallback=False),
    "names of pieces": byte_level(),
    "white space beside": byte_level(added=[AddedToken("<x>", rstrip=True)]),
    "white space before": byte_level(added=[AddedToken("<x>", lstrip=True)]),
    "strip": fallback(normalizers.Strip()),
    "replaced by nothing": fallback(normalizers.Replace("a", "")),
    "an expression": fallback(normalizers.Replace(Regex("a+"), "a")),
    "compatibility": fallback(normalizers.NFKC()),
    "within": fallback(sequence(normalizers.NFC(), sequence(normalizers.StripAccents()))),
    "split off": byte_level(pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()])),
    "words": byte_level(pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
    "punctuation": byte_level(pre_tokenizer=pre_tokenizers.Punctuation("removed")),
    "word level": Backend(models.WordLevel({"a": 0, "<unk>": 1}, "<unk>")),
    "word piece": Backend(models.WordPiece({"a": 0, "<unk>": 1}, unk_token="<unk>")),
}  # fmt: skip
UNBOUNDED["names of pieces"].model.end_of_word_suffix = "</w>"


@pytest.mark.parametrize("name", BOUNDED)
def test_no_text_has_fewer_tokens(name: str) -> None:
    backend, expected = BOUNDED[name]
    longest = longest_token(backend)
    assert longest == expected
    random = Random(name)
    parts = (*HARD, *SEQUENCES, "<|a long token|>")
    texts = [one * 50 for one in parts]
    texts += ["".join(random.choices(parts, k=random.randrange(1, 40))) for _ in range(300)]
    for text in texts:
        assert len(text.encode()) <= longest * len(backend.encode(text).ids), ascii(text)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_there_is_no_bound(name: str) -> None:
    assert longest_token(UNBOUNDED[name]) is None


def test_the_demo_model_has_one() -> None:
    tokenizer = Tokenizer(demo_model_path(), 4096)
    vocabulary = json.loads(tokenizer.definition())["model"]["vocab"]
    assert tokenizer.longest == 1 + max(map(len, vocabulary))


def test_what_composes_to_a_character_is_four_times_as_long_at_most() -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    longest: dict[str, int] = {}  # what may stand for a character
    for one in every:
        apart = unicodedata.normalize("NFD", one)
        if len(apart) == 1:
            longest[apart] = max(longest.get(apart, 0), len(one.encode()))
    for one in every:
        if unicodedata.normalize("NFC", one) == one:
            apart = unicodedata.normalize("NFD", one)
            assert sum(longest[part] for part in apart) <= 4 * len(one.encode())
