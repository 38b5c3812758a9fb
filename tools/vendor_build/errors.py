"""What ends a build: one line that says what was found, what was expected, and what to do."""

from __future__ import annotations


class BuildError(Exception):
    """The build cannot go on. `usage`: the caller asked for something that does not exist."""

    def __init__(self, message: str, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
