"""Texts of GGUF files and merges of vocabularies, read by the C library: there are hundreds of
thousands of them."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import native

LEAD = 8  # bytes of a text's length
NO_PAIR = 2**32 - 1
_SEPARATORS = range(32)  # none of them is in texts of a language


def texts_end(file: Any, start: int, count: int) -> int | None:
    """Where `count` texts end that begin at `start` of a file's bytes; None: not all are there."""
    view = native.ffi().from_buffer(file)
    end = int(native.lib().lora_texts_end(view, len(file), start, count))
    return end or None


def texts_of(file: Any, start: int, end: int, count: int) -> list[str]:
    """The texts at start..end, which `texts_end` has found. UnicodeDecodeError: no UTF-8."""
    if not count:
        return []
    ffi, room = native.ffi(), np.empty(end - start - (LEAD - 1) * count, np.uint8)
    view, out = ffi.from_buffer(file) + start, ffi.from_buffer("uint8_t[]", room)
    for separator in _SEPARATORS:
        if native.lib().lora_texts_joined(view, count, separator, out):
            return room.tobytes().decode().split(chr(separator))[:-1]
    found, at = [], start
    for _ in range(count):
        size = int.from_bytes(file[at : at + LEAD], "little")
        at += LEAD + size
        found.append(bytes(file[at - size : at]).decode())
    return found


def token_pairs(
    texts: bytes, scores: NDArray[np.float64], made: NDArray[np.bool_]
) -> NDArray[np.uint32]:
    """Of each token the two that merge into it, uint32 [tokens, 2], NO_PAIR where no text comes to
    it. `texts`: as in the file, `made`: which tokens merges make. ValueError: tokens that are too
    long to be those of a language."""
    ffi, count = native.ffi(), len(scores)
    pairs = np.empty((count, 2), np.uint32)
    kinds = np.ascontiguousarray(made, np.uint8)
    values = np.where(np.isnan(scores), -np.inf, scores)
    vocabulary = ffi.new("struct lora_vocabulary *")
    vocabulary.texts = ffi.from_buffer("uint8_t[]", texts)
    vocabulary.scores = ffi.from_buffer("double[]", values)
    vocabulary.made = ffi.from_buffer("uint8_t[]", kinds)
    vocabulary.key, vocabulary.count = secrets.randbits(64), count
    status = native.lib().lora_token_merges(vocabulary, ffi.from_buffer("uint32_t[]", pairs))
    if status == 2:
        raise MemoryError(f"{count} tokens")
    if status:
        raise ValueError("tokens of many characters")
    return pairs
