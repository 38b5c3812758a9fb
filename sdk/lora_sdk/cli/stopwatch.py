"""Tokens and times of answers."""

from __future__ import annotations

import time


class Stopwatch:
    """Tokens and wall-clock seconds of one answer, or summed over several."""

    def __init__(self, prompt: int = 0) -> None:
        self.prompt = prompt
        self.new = 0
        self.seconds = 0.0
        self._began = time.monotonic()
        self._first: float | None = None

    def count(self, token: bool) -> None:
        """A delta was received, with a token or without."""
        if token:
            self.new += 1
            if self._first is None:
                self._first = time.monotonic() - self._began

    def stop(self) -> None:
        """The answer has ended."""
        self.seconds = time.monotonic() - self._began

    def add(self, other: Stopwatch) -> None:
        """Add those of another answer."""
        self.prompt += other.prompt
        self.new += other.new
        self.seconds += other.seconds

    def text(self) -> str:
        """Counts, seconds and rate on one line."""
        first = "" if self._first is None else f", first token after {self._first:.2f} s"
        return (
            f"{self.prompt} prompt and {self.new} new tokens in {self.seconds:.2f} s "
            f"({self.new / max(self.seconds, 1e-9):.1f} new tokens/s){first}"
        )
