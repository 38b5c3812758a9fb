"""Tokenizers from the keys of GGUF files: those that the model's own files define."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from lora_host.errors import ModelError
from lora_sdk.text.chat import find_template
from lora_sdk.text.tokenizer import Tokenizer
from tests.variant_tokenizer import make_tokenizer

TEXTS = (
    "hello <s>world</s>", "  don't\tWE'LL 12345 67\r\n\r\n  x", "", " a",
    "\u00c4\u0041\u0308 \u2603", "tab\t\tand  two\n \n spaces  ", "<tool>a<tool>",
    "\u4f60\u597d, 1\u00bd", "...!?\n\n$x",
)  # fmt: skip
Keys = Callable[[gguf.GGUFWriter], None]


def written(path: Path, keys: Keys, architecture: str = "llama") -> Path:
    """A file of keys only."""
    writer = gguf.GGUFWriter(path, architecture)
    keys(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level(writer: gguf.GGUFWriter, pre: str | None, pieces: list[str], merges: int) -> None:
    kinds = gguf.TokenType
    types = [
        kinds.CONTROL if piece in ("<s>", "</s>", "<pad>") else kinds.NORMAL for piece in pieces
    ]
    types[-1] = kinds.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    writer.add_token_merges([f"{piece[0]} {piece[1]}" for piece in pieces[259 : 259 + merges]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def pieces_of(count: int) -> list[str]:
    """Those of the random models, and a token that is found whole."""
    backend = make_tokenizer(259 + count)
    return [*(backend.id_to_token(token) for token in range(259 + count)), "<tool>"]


REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"


def reference(pre: str, pieces: list[str], merges: int) -> Backend:
    """The same with the package's own classes, as the models' authors define it."""
    pairs = [(piece[0], piece[1]) for piece in pieces[259 : 259 + merges]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    backend = Backend(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre != "gpt-2":
        numbers = r"\p{N}{1,3}" if pre == "llama-bpe" else r"\p{N}"
        backend.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(WORDS + numbers + REST), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])  # fmt: skip
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name) for name in ("<s>", "</s>", "<pad>")])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_level_tokens_are_the_models_own(pre: str, tmp_path: Path) -> None:
    pieces = pieces_of(200)
    path = written(tmp_path / "a.gguf", lambda writer: byte_level(writer, pre, pieces, 180))
    found, wanted = Tokenizer(path, len(pieces)), reference(pre, pieces, 180)
    bos = [0] if pre == "llama-bpe" else []
    for text in TEXTS:
        ids = wanted.encode(text).ids
        assert found.encode(text) == bos + ids, text
        assert found.decode(ids, skip_special=False) == wanted.decode(ids, False)
    assert found.begins_with == tuple(bos)
    special = found.encode("<s>", special=False)
    assert special == [0] and found.decode(special) == "" and found.token_bytes(len(pieces) - 1)


SPM = [
    "<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdet",
    "\u2581a", "ab", "\u2581ab", "de", "cde", "\u2581t", "et", "abab", "<tool>", "\u2581\u2581",
]  # fmt: skip


def sentence_piece(writer: gguf.GGUFWriter, **flags: bool) -> None:
    kinds = gguf.TokenType
    named = {"<unk>": kinds.UNKNOWN, "<s>": kinds.CONTROL, "</s>": kinds.CONTROL,
             "<tool>": kinds.USER_DEFINED}  # fmt: skip
    writer.add_tokenizer_model("llama")
    writer.add_token_list(SPM)
    writer.add_token_scores([score_of(piece) for piece in SPM])
    writer.add_token_types(
        [named.get(p, kinds.BYTE if p.startswith("<0x") else kinds.NORMAL) for p in SPM]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)


def score_of(piece: str) -> float:
    """Of tokens of several letters, the earlier the better."""
    return -float(SPM.index(piece)) if len(piece) > 1 and not piece.startswith("<") else 0.0


def merged(text: str, prefix: bool) -> list[int]:
    """SentencePiece's algorithm: the leftmost pair with the best score, again and again."""
    text = text.replace(" ", "\u2581")
    parts = list("\u2581" + text if prefix and text else text)
    while True:
        pairs = [(left + right, at) for at, (left, right) in enumerate(pairwise(parts))]
        known = [(score_of(pair), -at) for pair, at in pairs if pair in SPM]
        if not known:
            break
        at = -max(known)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    ids = []
    for part in parts:
        ids += [SPM.index(part)] if part in SPM else [3 + byte for byte in part.encode()]
    return ids


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_tokens_are_those_of_its_scores(prefix: bool, tmp_path: Path) -> None:
    keys: Keys = lambda writer: sentence_piece(writer, add_space_prefix=prefix)  # noqa: E731
    found = Tokenizer(written(tmp_path / "a.gguf", keys), len(SPM))
    letters = np.random.default_rng(2).choice(list("aabbcdet  x\u00e9"), (200, 17))
    for row in letters:
        text = "".join(row)
        assert found.encode(text) == [1, *merged(text, prefix)], text
        assert found.decode(found.encode(text)) == text
    assert found.encode("a<tool>", special=False)[-1] == SPM.index("<tool>")
    assert found.begins_with == (1,) and found.byte_fallback


def test_ends_are_added_as_the_keys_say(tmp_path: Path) -> None:
    keys: Keys = lambda writer: sentence_piece(  # noqa: E731
        writer, add_bos_token=False, add_eos_token=True
    )
    assert Tokenizer(written(tmp_path / "a.gguf", keys), len(SPM)).encode("ab") == [
        *merged("ab", True), 2,
    ]  # fmt: skip


def test_what_is_not_exact_is_refused_or_taken_from_beside(tmp_path: Path) -> None:
    pieces = pieces_of(20)
    path = written(tmp_path / "a.gguf", lambda writer: byte_level(writer, "bloom", pieces, 20))
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre is 'bloom', expected one of gpt-2"):
        Tokenizer(path, 300)
    unnamed = written(tmp_path / "b.gguf", lambda writer: byte_level(writer, None, pieces, 20))
    with pytest.raises(ModelError, match=r"'default'.*put the model's own tokenizer\.json beside"):
        Tokenizer(unnamed, 300)
    make_tokenizer(300).save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(path, 300).encode("hello") == make_tokenizer(300).encode("hello").ids


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("tokenizer.ggml.model", "t5", "expected gpt2 or llama"),
        ("tokenizer.ggml.remove_extra_whitespaces", True, "expected false"),
        ("tokenizer.ggml.precompiled_charsmap", "x", "expected no such key"),
        ("tokenizer.ggml.bos_token_id", 10**6, "expected an integer in 0.."),
        ("tokenizer.ggml.add_bos_token", 3, "expected true or false"),
    ],
)
def test_keys_that_change_tokens_are_refused_by_name(
    key: str, value: Any, part: str, tmp_path: Path
) -> None:
    def keys(writer: gguf.GGUFWriter) -> None:
        sentence_piece(writer)
        kind = {bool: gguf.GGUFValueType.BOOL, str: gguf.GGUFValueType.STRING}
        writer.kv_data[0][key] = gguf.gguf_writer.GGUFValue(
            value, kind.get(type(value), gguf.GGUFValueType.UINT32)
        )

    with pytest.raises(ModelError, match=f"{key} is .*{part}"):
        Tokenizer(written(tmp_path / "a.gguf", keys), len(SPM))


def test_special_tokens_that_strip_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gguf", sentence_piece, "phi3")
    with pytest.raises(ModelError, match=r"architecture is 'phi3'.*tokenizer\.json beside"):
        Tokenizer(path, len(SPM))


def test_the_chat_template_is_in_the_file(tmp_path: Path) -> None:
    def keys(writer: gguf.GGUFWriter) -> None:
        sentence_piece(writer)
        writer.add_chat_template("{{ messages[0].content }}")

    path = written(tmp_path / "a.gguf", keys)
    tokenizer = Tokenizer(path, len(SPM))
    assert find_template(path, tokenizer) == "{{ messages[0].content }}"
    assert tokenizer.config["bos_token"] == "<s>" and tokenizer.config["eos_token"] == "</s>"
    assert unicodedata.is_normalized("NFC", tokenizer.decode([1, *merged("ab", True)]))
