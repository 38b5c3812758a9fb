"""Words of messages: numbers of things, suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """A number of things: "1 board", "2 boards"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """End of an error message: the nearest known name, or all known names (at least one)."""
    names = list(known)
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
