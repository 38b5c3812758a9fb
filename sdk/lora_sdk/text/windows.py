"""Windows over a text in which every token is scored once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Tokens [start, stop) are run; those from `scored` on count."""

    start: int
    scored: int
    stop: int


def windows_of(tokens: int, first: int, context: int, stride: int) -> list[Window]:
    """Windows over `tokens` tokens in which each one from `first` on counts once.

    A window has at most context + 1 tokens, since its last one is predicted, not run. Each but the
    first begins so that it counts `stride` new tokens and has the rest before them as context.
    """
    windows: list[Window] = []
    scored = first
    while scored < tokens:
        stop = min(tokens, context + 1 if not windows else scored + stride)
        windows.append(Window(max(0, stop - context - 1), scored, stop))
        scored = stop
    return windows
