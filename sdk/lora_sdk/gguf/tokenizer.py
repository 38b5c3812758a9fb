"""The tokenizer of a GGUF file as the tokenizers package's JSON. What the keys do not say exactly
is refused by name; the model's own tokenizer.json beside the file is used then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.gguf.merges import merges_of_scores
from lora_sdk.gguf.splits import SPLITS, Split, byte_level
from lora_sdk.gguf.values import Metadata

LEAD = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"
MAX_TOKEN = 4096
STRIPPING = ("phi3",)  # architectures whose special tokens take the spaces behind them, by no key
KEEPING = ("<unk>", "<s>", "<|endoftext|>")  # but these
SPECIAL = {
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding",
}  # fmt: skip
FIM = {  # the older names first
    "prefix": ("prefix", "fim_pre"), "suffix": ("suffix", "fim_suf"),
    "middle": ("middle", "fim_mid"), "repo": ("fim_rep",), "file": ("fim_sep",),
    "pad": ("fim_pad",),
}  # fmt: skip
# Keys of `tokenizer.ggml.` that are read here, or do not change a text's tokens.
KNOWN = frozenset(
    ("model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token",
     "add_space_prefix", "token_type_count", "add_sep_token", "remove_extra_whitespaces",
     "escape_whitespaces", "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id",
     "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id", "prefix_token_id",
     "suffix_token_id", "middle_token_id", "eot_token_id", "eom_token_id", "mask_token_id",
     "cls_token_id", "seperator_token_id", "eog_token_ids",
     "normalizer.lowercase", "normalizer.strip_accents",
     *(f"{name}_token_id" for name in SPECIAL.values()))
)  # fmt: skip


_SPACES_REPLACED = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


class InexactTokenizer(ModelError):
    """The keys do not define the tokenizer; tokenizer.json beside the file would."""


@dataclass(frozen=True)
class GgufTokenizer:
    """Reads the keys of one file. Its methods raise ModelError that names a key."""

    metadata: Metadata

    def definition(self) -> dict[str, Any]:
        """What tokenizer.json would hold. InexactTokenizer where that is not known exactly."""
        for key, value in self.metadata.values.items():
            if key.startswith(LEAD) and key.removeprefix(LEAD) not in KNOWN:
                raise self._inexact(key, value, "no such key")
        kind = self.metadata.text(f"{LEAD}model")
        if kind not in _KINDS:
            raise self._inexact(f"{LEAD}model", kind, " or ".join(_KINDS))
        return _KINDS[kind](self)

    def settings(self) -> dict[str, Any]:
        """What tokenizer_config.json would hold: special tokens and the chat template."""
        found: dict[str, Any] = {}
        for name, key in SPECIAL.items():
            token = self._token(key)
            if token is not None:
                found[name] = self.tokens[token]
        marks: dict[str, str] = {}
        for name, keys in FIM.items():
            for token in map(self._token, keys):
                if token is not None:
                    marks[name] = self.tokens[token]
        if marks:
            found["fim_tokens"] = marks
        if TEMPLATE in self.metadata.values:
            found["chat_template"] = self.metadata.text(TEMPLATE)
        return found

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens' texts."""
        return list(self._ids)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The tokens' ids by their texts, in order."""
        texts = self.metadata.texts(f"{LEAD}tokens")
        found = dict(zip(texts, range(len(texts)), strict=True))
        if not found or len(found) < len(texts):
            raise self.metadata.error(f"{LEAD}tokens", f"{len(texts)} texts", "different tokens")
        if max(map(len, found)) > MAX_TOKEN:
            raise self.metadata.error(
                f"{LEAD}tokens", "a longer text", f"at most {MAX_TOKEN} characters of a token"
            )
        return found

    @cached_property
    def types(self) -> NDArray[np.int64]:
        """The tokens' types; all are normal where none are given."""
        key = f"{LEAD}token_type"
        if key not in self.metadata.values:
            return np.full(len(self.tokens), NORMAL, np.int64)
        with np.errstate(invalid="ignore"):  # NaN is no type
            return self.metadata.numbers(key, len(self.tokens)).astype(np.int64)

    def _of(self, *kinds: int) -> list[int]:
        """The tokens of these types."""
        (found,) = np.nonzero(np.isin(self.types, kinds))
        ids: list[int] = found.tolist()
        return ids

    def byte_level_bpe(self) -> dict[str, Any]:
        """Merges of bytes that are written as letters, as GPT-2's."""
        split = self._split()
        vocabulary = dict(self._ids)
        for unused in self._of(UNUSED):
            del vocabulary[self.tokens[unused]]
        model = _bpe(vocabulary, self._merges(), ignore_merges=split.whole_words)
        found = self._whole(model, (CONTROL,))
        found["normalizer"] = {"type": "NFC"} if split.nfc else None
        found["pre_tokenizer"] = split.pre_tokenizer
        found["decoder"] = byte_level(use_regex=True)
        found["post_processor"] = self._ends(split.bos, None)
        return found

    def sentence_piece(self) -> dict[str, Any]:
        """SentencePiece's BPE: the pair with the best score is merged; bytes for the rest."""
        scores = self.metadata.numbers(f"{LEAD}scores", len(self.tokens)).astype(np.float64)
        for name in ("remove_extra_whitespaces", "escape_whitespaces"):
            wanted = name == "escape_whitespaces"
            if self.metadata.flag(LEAD + name, wanted) != wanted:
                raise self._inexact(LEAD + name, not wanted, str(wanted).lower())
        unknown = self._unknown()
        made = ~np.isin(self.types, (CONTROL, UNKNOWN, BYTE))
        texts = self.metadata.raw_texts(f"{LEAD}tokens")
        try:
            merges = merges_of_scores(self.tokens, texts, scores, made)
        except ValueError as error:
            raise self._inexact(
                f"{LEAD}tokens", str(error), "the vocabulary of a tokenizer"
            ) from None
        model = _bpe(self._ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
        found = self._whole(model, (CONTROL, UNKNOWN))
        prefix = self.metadata.flag(f"{LEAD}add_space_prefix", True)
        lead = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
        found["normalizer"] = {"type": "Sequence", "normalizers": [*lead, _SPACES_REPLACED]}
        found["decoder"] = {"type": "Sequence", "decoders": _spm_decoders(prefix)}
        found["post_processor"] = self._ends(True, 1)
        return found

    def spaced_bpe(self) -> dict[str, Any]:
        """Gemma 4's: merges of characters, spaces written as in SentencePiece, bytes for the
        rest."""
        unknown = self._unknown()
        model = _bpe(
            self._ids, self._merges(), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
        found = self._whole(model, (CONTROL, UNKNOWN))
        found["normalizer"] = _SPACES_REPLACED
        found["decoder"] = {"type": "Sequence", "decoders": _spm_decoders(False)}
        found["post_processor"] = self._ends(True, None)
        return found

    def word_piece(self) -> dict[str, Any]:
        """BERT's: the file writes the start of a word where the model's own writes ## before the
        rest of one. Texts begin with CLS and end with SEP."""
        lowercase = self.metadata.flag(f"{LEAD}normalizer.lowercase", True)
        stripped = self.metadata.flag(f"{LEAD}normalizer.strip_accents", lowercase)
        pieces = [
            token if kind == CONTROL else _of_bert(token)
            for token, kind in zip(self.tokens, self.types, strict=True)
        ]
        if len(set(pieces)) < len(pieces):
            raise self.metadata.error(f"{LEAD}tokens", "a word twice", "different tokens")
        named = self._token("unknown")
        unknown = "[UNK]" if named is None else pieces[named]
        if unknown not in pieces:
            raise self.metadata.missing(f"{LEAD}unknown_token_id", "a token's id")
        model = {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: index for index, token in enumerate(pieces)},
        }  # fmt: skip
        found = self._whole(model, (CONTROL,))
        found["normalizer"] = {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": stripped, "lowercase": lowercase,
        }  # fmt: skip
        found["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        found["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
        first = "cls" if f"{LEAD}cls_token_id" in self.metadata.values else "bos"
        found["post_processor"] = self._around(
            self._end(first, True, None, "bos"), self._end("seperator", True, None, "sep")
        )
        return found

    def _unknown(self) -> str:
        """The token of what is no other: by its id, or the only one of that type."""
        named = self._token("unknown")
        if named is not None:
            return self.tokens[named]
        found = self._of(UNKNOWN)
        if len(found) != 1:
            raise self._inexact(f"{LEAD}token_type", f"{len(found)} unknown tokens", "one")
        return self.tokens[found[0]]

    def _split(self) -> Split:
        key = f"{LEAD}pre"
        name = self.metadata.text(key, "default")
        if name not in SPLITS:
            raise self._inexact(key, name, "one of " + ", ".join(SPLITS))
        return SPLITS[name]

    def _merges(self) -> list[tuple[str, ...]]:
        key = f"{LEAD}merges"
        found = [tuple(merge.split(" ")) for merge in self.metadata.texts(key)]
        bad = next((merge for merge in found if len(merge) != 2), None)
        if bad is not None:
            raise self.metadata.error(key, " ".join(bad), "two tokens with a space between them")
        return found

    def _whole(self, model: dict[str, Any], special: Sequence[int]) -> dict[str, Any]:
        """Everything with tokens that are found in a text before it is split."""
        stripping = self.metadata.text("general.architecture") in STRIPPING
        added = [
            {
                "id": index, "content": token, "single_word": False, "lstrip": False,
                "rstrip": stripping and token not in KEEPING, "normalized": False,
                "special": self.types[index] in special,
            }
            for index in self._of(*special, USER_DEFINED)
            if (token := self.tokens[index])
        ]  # fmt: skip
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": model,
        }  # fmt: skip

    def _ends(self, bos_default: bool, bos_id: int | None) -> dict[str, Any] | None:
        """Adds the tokens that begin and end a text."""
        return self._around(self._end("bos", bos_default, bos_id), self._end("eos", False, None))

    def _around(self, first: str | None, last: str | None) -> dict[str, Any] | None:
        used = [token for token in (first, last) if token is not None]
        if not used:
            return None
        special = {
            token: {"id": token, "ids": [self._ids[token]], "tokens": [token]} for token in used
        }

        def around(*texts: str) -> list[dict[str, Any]]:
            parts = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
            start = [] if first is None else [{"SpecialToken": {"id": first, "type_id": 0}}]
            end = [] if last is None else [{"SpecialToken": {"id": last, "type_id": 0}}]
            return [*start, *parts, *end]

        return {"type": "TemplateProcessing", "single": around("A"), "pair": around("A", "B"),
                "special_tokens": special}  # fmt: skip

    def _end(self, name: str, default: bool, default_id: int | None, added: str = "") -> str | None:
        """The token `name`, where the flag of `added`, by default the same name, says so."""
        key = f"{LEAD}add_{added or name}_token"
        if not self.metadata.flag(key, default):
            return None
        token = self._token(name)
        token = default_id if token is None else token
        if token is None or token >= len(self.tokens):
            raise self.metadata.missing(f"{LEAD}{name}_token_id", f"a token's id, for {key}")
        return self.tokens[token]

    def _token(self, name: str) -> int | None:
        key = f"{LEAD}{name}_token_id"
        if key not in self.metadata.values or self.metadata.values[key] == 2**32 - 1:
            return None
        return self.metadata.integer(key, None, 0, len(self.tokens) - 1)

    def _inexact(self, key: str, found: object, expected: str) -> InexactTokenizer:
        error = self.metadata.error(key, found, expected)
        return InexactTokenizer(
            f"{error}; put the model's own tokenizer.json beside the file, or give token ids"
        )


def _bpe(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, ...]], **other: Any
) -> dict[str, Any]:
    plain = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False,
    }  # fmt: skip
    return {**plain, **other, "vocab": dict(vocabulary), "merges": merges}


def _of_bert(token: str) -> str:
    """The model's own writing of a file's token."""
    return token[1:] if token.startswith(SPACE) else "##" + token


def _spm_decoders(prefix: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        found.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return found


_KINDS: Mapping[str, Callable[[GgufTokenizer], dict[str, Any]]] = {
    "gpt2": GgufTokenizer.byte_level_bpe,
    "llama": GgufTokenizer.sentence_piece,
    "gemma4": GgufTokenizer.spaced_bpe,
    "bert": GgufTokenizer.word_piece,
}
