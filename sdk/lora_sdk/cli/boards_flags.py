"""Options that say which boards a lab tool works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def board_options(function: Function) -> Function:
    """Boards by device or cluster file, and the overlay; `overlay_for` finds its default."""
    for option in reversed(
        [
            click.option("--device", "devices", multiple=True, metavar="URI",
                         help="board to use, as slash:0000:21:00.0; once a board"),
            click.option("--cluster", "cluster_file", metavar="FILE",
                         help="cluster file: boards and cabling"),
            click.option("--boards", type=int, metavar="N",
                         help="how many emulated boards, where none is named [1]"),
            click.option("--overlay", metavar="NAME",
                         help="overlay name or folder [LORA-F of the first board's kind]"),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def overlay_for(name: str | None, devices: Sequence[str], cluster_file: str | None) -> Any:
    """The overlay of this name, or the LORA-F of the first board named (u280 where none is)."""
    from lora_host.overlay import load_overlay
    from lora_host.selection import default_overlay

    return load_overlay(name or default_overlay(devices, cluster_file))
