"""Tokenizers from the keys of GGUF files: those that the model's own files define."""

from __future__ import annotations

import json
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
from lora_sdk.text.tokenizer_files import tokenizer_files
from tests.variant_tokenizer import make_tokenizer

TEXTS = (
    "hello <s>world</s>", "  don't\tWE'LL 12345 67\r\n\r\n  x", "", " a",
    "\u00c4\u0041\u0308 \u2603", "tab\t\tand  two\n \n spaces  ", "<tool>a<tool>",
    "\u4f60\u597d, 1\u00bd", "...!?\n\n$x", "camelCaseHTTPServer Don'T 1234567",
    "#include <a.h>\t// x",
    "\u3053\u3093\u306b\u3061\u306f world\u3002\u0645\u0631\u062d\u0628\u0627\u060c",
    "\U0001f600\u200d\U0001f32b\ufe0f /path/to",
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
    """Those of the random models, pairs over which splits differ, and a token that is found
    whole."""
    backend = make_tokenizer(259 + count)
    found = [backend.id_to_token(token) for token in range(259 + count)]
    pairs = [pair for pair in DIFFERENT if pair not in found]
    return [*found[:259], *pairs, *found[259:], "<tool>"]


DIFFERENT = ("12", "34", "67", "\u01201", "\u0120d", "..", "!?", "//", "$x", "'t", "'T", "lC")


REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"


CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SYMBOLS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(*patterns: str) -> list[Any]:
    """The package's steps of expressions, then bytes."""
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


STEPS: dict[str, list[Any]] = {
    "gpt-2": [gpt2()],
    "mpt": [gpt2()],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), gpt2()],
    "command-r": [pre_tokenizers.Digits(individual_digits=True), gpt2()],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"), gpt2(), pre_tokenizers.Digits(False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
    "llama-bpe": split(WORDS + r"\p{N}{1,3}" + REST),
    "qwen2": split(WORDS + r"\p{N}" + REST),
    "tekken": split(
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}*{CASED[1]}+"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}+{CASED[1]}*|\p{{N}}" + SYMBOLS
    ),
    "deepseek-v3": split(
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "qwen35": split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "bailingmoe": split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "exaone-moe": split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "minicpm5": split(r"\p{N}{1,3}", WORDS + r"\p{N}+" + REST),
    "laguna": split(r"[^\n]+|\n+", WORDS + r"\p{N}" + REST),
    "ufakzeka": split(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST),
    "superbpe": split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "bloom": split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"),
}  # fmt: skip


def reference(pre: str, pieces: list[str], merges: int) -> Backend:
    """The same with the package's own classes, as the models' authors define it."""
    pairs = [(piece[0], piece[1]) for piece in pieces[259 : 259 + merges]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    whole = pre in ("llama-bpe", "tekken", "minicpm5")
    backend = Backend(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=whole))
    backend.pre_tokenizer = pre_tokenizers.Sequence(STEPS[pre])
    if pre in ("qwen2", "qwen35", "mpt", "command-r"):
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name) for name in ("<s>", "</s>", "<pad>")])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


@pytest.mark.parametrize("pre", STEPS)
def test_byte_level_tokens_are_the_models_own(pre: str, tmp_path: Path) -> None:
    pieces = pieces_of(200)
    path = written(tmp_path / "a.gguf", lambda writer: byte_level(writer, pre, pieces, 180))
    found, wanted = Tokenizer(path, len(pieces)), reference(pre, pieces, 180)
    bos = [0] if pre in ("llama-bpe", "tekken") else []
    for text in TEXTS:
        ids = wanted.encode(text).ids
        assert found.encode(text) == bos + ids, text
        assert found.decode(ids, skip_special=False) == wanted.decode(ids, False)
    assert found.begins_with == tuple(bos)
    special = found.encode("<s>", special=False)
    assert special == [0] and found.decode(special) == "" and found.token_bytes(len(pieces) - 1)


def test_what_is_made_of_parts_is_what_the_json_says(tmp_path: Path) -> None:
    """Vocabulary, merges and added tokens get into the package without JSON between."""
    pieces = pieces_of(200)
    keys: tuple[Keys, ...] = (
        lambda writer: byte_level(writer, "falcon", pieces, 180),
        lambda writer: sentence_piece(writer, add_space_prefix=False),
    )
    for number, key in enumerate(keys):
        files = tokenizer_files(written(tmp_path / f"{number}.gguf", key))
        made = json.loads(files.backend().to_str())
        assert made == json.loads(Backend.from_buffer(files.definition()).to_str())
        assert made["model"]["merges"] and made["added_tokens"]


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
    path = written(tmp_path / "a.gguf", lambda writer: byte_level(writer, "afmoe", pieces, 20))
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre is 'afmoe', expected one of gpt-2"):
        Tokenizer(path, 300)
    unnamed = written(tmp_path / "b.gguf", lambda writer: byte_level(writer, None, pieces, 20))
    with pytest.raises(ModelError, match=r"'default'.*put the model's own tokenizer\.json beside"):
        Tokenizer(unnamed, 300)
    make_tokenizer(300).save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(path, 300).encode("hello") == make_tokenizer(300).encode("hello").ids


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("tokenizer.ggml.model", "t5", "expected gpt2 or llama or"),
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


def test_phi3s_special_tokens_take_the_spaces_behind_them(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gguf", sentence_piece, "phi3")
    found = Tokenizer(path, len(SPM)).encode("</s>  ab<s> ab", special=False)
    assert found == [2, *merged("ab", True), 1, *merged(" ab", True)]


def test_an_unknown_token_may_be_named_by_its_id(tmp_path: Path) -> None:
    """As in Gemma's files, where all special tokens are of one type."""

    def keys(writer: gguf.GGUFWriter) -> None:
        sentence_piece(writer)
        types = writer.kv_data[0]["tokenizer.ggml.token_type"]
        types.value[0] = gguf.TokenType.CONTROL
        writer.add_unk_token_id(0)

    found = Tokenizer(written(tmp_path / "a.gguf", keys), len(SPM))
    assert found.encode("<unk>ab", special=False) == [0, *merged("ab", True)]


WORDS_OF_BERT = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "##lo", "hel", "world", "##s", "!", ",", "caf",
    "##e", "caf\u00e9", "\u4f60", "Hello",
]  # fmt: skip


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_berts(lowercase: bool, tmp_path: Path) -> None:
    def keys(writer: gguf.GGUFWriter) -> None:
        kinds = gguf.TokenType
        special = [word.startswith("[") for word in WORDS_OF_BERT]
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("bert-bge")
        writer.add_token_list([
            word if is_special else word[2:] if word.startswith("##") else "\u2581" + word
            for word, is_special in zip(WORDS_OF_BERT, special, strict=True)
        ])  # fmt: skip
        writer.add_token_types([kinds.CONTROL if one else kinds.NORMAL for one in special])
        writer.add_unk_token_id(1)
        writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
        writer.add_sep_token_id(3)
        if not lowercase:
            writer.add_bool("tokenizer.ggml.normalizer.lowercase", False)

    found = Tokenizer(written(tmp_path / "a.gguf", keys, "bert"), len(WORDS_OF_BERT))
    wanted = Backend(models.WordPiece(
        vocab={word: index for index, word in enumerate(WORDS_OF_BERT)}, unk_token="[UNK]"
    ))  # fmt: skip
    wanted.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    wanted.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wanted.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    texts = ("Hello, worlds!", "caf\u00e9 cafe", "helloworld", "\u4f60hello", "  ", "[SEP]hel lo")
    for text in texts:
        ids = wanted.encode(text).ids
        assert found.encode(text) == [2, *ids, 3], text
    assert len({tuple(found.encode(text)) for text in texts}) == len(texts)


def test_spaced_merges_are_gemma_4s(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "\n", "\n\n"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    merges = ["\u2581 a", "\u2581a b", "a b", "\n \n"]

    def keys(writer: gguf.GGUFWriter) -> None:
        kinds = gguf.TokenType
        types = [kinds.UNKNOWN, kinds.CONTROL, *[kinds.NORMAL] * 8, *[kinds.BYTE] * 256]
        writer.add_tokenizer_model("gemma4")
        writer.add_token_list(pieces)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(1)
        writer.add_unk_token_id(0)

    found = Tokenizer(written(tmp_path / "a.gguf", keys), len(pieces))
    assert found.encode(" ab ab\n\nab<s>") == [1, 7, 7, 9, 6, 1]
    assert found.encode("a\u00e9", special=False) == [3, 10 + 0xC3, 10 + 0xA9]
    assert found.decode(found.encode(" ab \u00e9\n")) == " ab \u00e9\n"


def test_the_chat_template_is_in_the_file(tmp_path: Path) -> None:
    def keys(writer: gguf.GGUFWriter) -> None:
        sentence_piece(writer)
        writer.add_chat_template("{{ messages[0].content }}")

    path = written(tmp_path / "a.gguf", keys)
    tokenizer = Tokenizer(path, len(SPM))
    assert find_template(path, tokenizer) == "{{ messages[0].content }}"
    assert tokenizer.config["bos_token"] == "<s>" and tokenizer.config["eos_token"] == "</s>"
    assert unicodedata.is_normalized("NFC", tokenizer.decode([1, *merged("ab", True)]))
