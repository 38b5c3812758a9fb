"""How much text a token can stand for, where a tokenizer's rules let that be told: what is longer
than so many tokens needs no tokenization to be refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_FORMS = {"NFC": 4.0, "NFD": 4.0, "NFKD": 4.0}
"""Unicode's: a character of n bytes comes of 4 n at most, as a Kelvin sign does of a K. NFC: of the
canonical decompositions of all characters the largest ratio is 3.5."""
_SAME = ("ByteLevel", "Metaspace", "Digits", "UnicodeScripts", "Sequence")
_BYTES = 256
_CHARACTER = 4  # bytes of one, at most


def longest_token(backend: Any) -> int | None:
    """The most bytes of UTF-8 that texts have for each of their tokens; None where a rule may leave
    characters out, or make one token of any number of them. `backend`: tokenizers.Tokenizer."""
    normalizers = list(_steps(backend.normalizer, "normalizers"))
    splits = list(_steps(backend.pre_tokenizer, "pretokenizers"))
    growth = 1.0
    for step in normalizers:
        shrunk = _shrinks(step)
        if shrunk is None:
            return None
        growth *= shrunk
    if not all(map(_keeps, splits)):
        return None
    byte_level = any(step["type"] == "ByteLevel" for step in splits)
    vocabulary = backend.get_vocab(with_added_tokens=False)
    added = backend.get_added_tokens_decoder().values()
    if not _reads_all(backend.model, vocabulary, byte_level):
        return None
    if any(one.lstrip or one.rstrip for one in added):  # and the white space beside it
        return None
    pieces = max((len(one) if byte_level else len(one.encode()) for one in vocabulary), default=0)
    whole = max(pieces, _CHARACTER, *map(len, _contents(backend, added)))
    return int(whole * growth) + 1


def _contents(backend: Any, added: Iterable[Any]) -> Iterator[bytes]:
    """Of added tokens, as they are and as the normalizer has them."""
    yield b""
    for one in added:
        yield one.content.encode()
        if one.normalized and backend.normalizer is not None:
            yield backend.normalizer.normalize_str(one.content).encode()


def _steps(stage: Any, parts: str) -> Iterator[dict[str, Any]]:
    """Of a stage of the package, sequences taken apart."""
    if stage is None:
        return
    waiting = [json.loads(stage.__getstate__())]
    while waiting:
        step = waiting.pop()
        waiting += step.get(parts, [])
        yield step


def _shrinks(step: dict[str, Any]) -> float | None:
    """How many times as long a text may have been before a normalizer; None: no bound is known."""
    kind, pattern, content = step["type"], step.get("pattern", {}), step.get("content")
    if kind == "Replace" and "String" in pattern and content:
        return max(1.0, len(pattern["String"].encode()) / len(content.encode()))
    return 1.0 if kind in ("Prepend", "Sequence") else _FORMS.get(kind)


def _keeps(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer leaves nothing out."""
    if step["type"] in ("Split", "Punctuation"):
        return step.get("behavior") not in (None, "Removed")
    return step["type"] in _SAME


def _reads_all(model: Any, vocabulary: dict[str, int], byte_level: bool) -> bool:
    """Whether each character is at least one token: no run of them is left out, or is one unknown
    token."""
    from tokenizers import models, pre_tokenizers

    if not isinstance(model, models.BPE):
        return False
    if model.continuing_subword_prefix or model.end_of_word_suffix:  # other names of characters
        return False
    if byte_level and all(one in vocabulary for one in pre_tokenizers.ByteLevel.alphabet()):
        return True
    if model.byte_fallback:
        return all(f"<0x{byte:02X}>" in vocabulary for byte in range(_BYTES))
    return model.unk_token in vocabulary and not model.fuse_unk
