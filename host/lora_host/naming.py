"""Words of messages: numbers of things, suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """A number of things: "1 board", "2 boards"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def install(extra: str) -> str:
    """The end of a message about a package that is missing: how to get this project's `extra`."""
    return f"in the project's folder: pip install '.[{extra}]'"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in their order, runs of three and more that ascend by one as "0-63"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """End of an error message: the nearest known name, or all known names (at least one)."""
    names = list(known)
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
