"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """End of an error message: the nearest known name, or all known names (at least one)."""
    names = list(known)
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
