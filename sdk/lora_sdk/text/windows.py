"""Windows over a text in which every token is scored once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Tokens [start, stop) are run. Those from `scored` on are scored."""

    start: int
    scored: int
    stop: int


def windows_of(tokens: int, first: int, context: int, stride: int) -> list[Window]:
    """Windows over `tokens` tokens in which each token from `first` on is scored once.

    A window has at most context + 1 tokens: the last one is predicted, not run. The first window
    scores all its tokens. Each later one scores `stride` new tokens; the others are context.
    """
    windows: list[Window] = []
    scored = first
    while scored < tokens:
        stop = min(tokens, context + 1 if not windows else scored + stride)
        windows.append(Window(max(0, stop - context - 1), scored, stop))
        scored = stop
    return windows
