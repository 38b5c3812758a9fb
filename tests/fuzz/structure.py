"""Mutations that keep an input's structure, so that they reach what lies behind a format's first
checks."""

from __future__ import annotations

import json
from random import Random

from tests.hostile_models import mutated_header
from tests.mutations import as_json, damaged, rewritten

UNFIT = (ValueError, TypeError, IndexError, OverflowError, RecursionError)
"""What a mutation by structure raises where an input has no such structure."""


def of_text(random: Random, data: bytes) -> bytes:
    """Words replaced, dropped, doubled or swapped."""
    text = data.decode("utf-8", "surrogateescape")
    return rewritten(random, text).encode("utf-8", "surrogateescape" if _plain(text) else "replace")


def _plain(text: str) -> bool:
    return not any("\ud800" <= letter < "\udc80" for letter in text)


def of_json(random: Random, data: bytes) -> bytes:
    """Values replaced, dropped, renamed, wrapped or moved; of_text for what is no JSON."""
    try:
        value = json.loads(data)
    except UNFIT:
        return of_text(random, data)
    try:
        return as_json(random, value) if isinstance(value, dict | list) else damaged(random, data)
    except UNFIT:
        return damaged(random, data)


def of_lines(random: Random, data: bytes) -> bytes:
    """One line of JSON among others."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = of_json(random, lines[at])
    return b"\n".join(lines)


def of_safetensors(random: Random, data: bytes) -> bytes:
    """The header's values, with its length; of_bytes for what has no header."""
    try:
        return mutated_header(random, data)
    except UNFIT:
        return damaged(random, data)


def of_bytes(random: Random, data: bytes) -> bytes:
    """Bits, edge values, runs cut out or doubled."""
    return damaged(random, data)
