"""Flags that select the boards and the overlay of a lab tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lora_sdk.cli.flags import flags
from lora_sdk.opening.options import EngineOptions

Function = TypeVar("Function", bound=Callable[..., Any])

_OVERLAY = {"unset": "LORA-F of the first board's kind"}


def board_flags(function: Function) -> Function:
    """Flags: boards by device or cluster file, and the overlay. `overlay_for` gives its default."""
    names = ("devices", "cluster_file", "boards", "overlay")
    boards = {"help": "emulated boards, if no board is named", "unset": "1"}
    return flags(EngineOptions, *names, boards=boards, overlay=_OVERLAY)(function)


def device_flags(function: Function) -> Function:
    """Flags: at least one board by device, and the overlay."""
    devices = {"required": True, "unset": ""}
    names = ("devices", "overlay")
    return flags(EngineOptions, *names, devices=devices, overlay=_OVERLAY)(function)


def overlay_for(name: str | None, devices: Sequence[str], cluster_file: str | None) -> Any:
    """The overlay of this name, or LORA-F for the first board named (u280 if none is)."""
    from lora_host.overlay import load_overlay
    from lora_host.selection import default_overlay

    return load_overlay(name or default_overlay(devices, cluster_file))
