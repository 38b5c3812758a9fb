"""Files that a command writes at its end: that they can be written is checked at its start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputFile(click.Path):
    """A file to be written: its folder exists, and neither it nor the folder refuses."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(super().convert(value, param, ctx)))
        folder = path.parent
        if not folder.is_dir():
            self.fail(f"{folder} is no folder; make it first, or name another file", param, ctx)
        if not path.exists() and not os.access(folder, os.W_OK):
            self.fail(f"{folder} cannot be written to; name another file", param, ctx)
        return path


OUTPUT = OutputFile()
