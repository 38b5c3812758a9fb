"""Options of `lora-run` that name adapters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from lora_host.errors import RequestError
from lora_sdk.cli.flags import flags
from lora_sdk.opening.options import EngineOptions

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterInfo

Function = TypeVar("Function", bound=Callable[..., Any])


class TakesAdapters(Protocol):
    """An engine, or several."""

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """See Engine."""


@dataclass(frozen=True)
class NamedAdapter:
    """NAME=PATH[:SCALE]."""

    name: str
    path: Path
    scale: float = 1.0


def adapter_flags(function: Function) -> Function:
    """--adapter and its related options."""
    slots = {"default": None, "type": "int | None", "low": 1, "unset": "all that are named"}
    slots["help"] = "adapters on the boards at once"
    function = flags(EngineOptions, "max_adapters", "adapter_mode", max_adapters=slots)(function)
    return click.option(
        "--adapter", "--lora-modules", "adapters", multiple=True, metavar="NAME=PATH[:SCALE]",
        help="PEFT folder; the first one is the default of prompts that name none",
    )(function)  # fmt: skip


def take_adapters(options: dict[str, Any]) -> tuple[list[NamedAdapter], dict[str, Any]]:
    """Remove the options of `adapter_flags`. Returns the adapters and the Engine's arguments."""
    found = [parse_adapter(text) for text in options.pop("adapters")]
    slots, mode = options.pop("max_adapters"), options.pop("adapter_mode")
    names = [adapter.name for adapter in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RequestError(f"--adapter {name!r} is given twice; give each adapter its own name")
    if not found:
        if slots is not None:
            raise RequestError("--max-adapters is for --adapter; name an adapter")
        return [], {}
    return found, {
        "max_adapters": len(found) if slots is None else slots,
        "max_adapter_rank": max(_rank(adapter) for adapter in found),
        "adapter_mode": mode,
    }


def default_adapter(found: Sequence[NamedAdapter]) -> Mapping[str, object]:
    """The sampling parameter of prompts that name no adapter."""
    return {"adapter": found[0].name} if found else {}


def load_adapters(engine: TakesAdapters, found: Sequence[NamedAdapter]) -> list[str]:
    """Load all adapters. Returns remarks on their sharding, one line each."""
    infos = [engine.load_adapter(one.name, one.path, one.scale) for one in found]
    return [f"adapter {info.name}: {info.note}" for info in infos if info.note]


def parse_adapter(text: str) -> NamedAdapter:
    """NAME=PATH or NAME=PATH:SCALE. An existing path that contains a colon is not split."""
    name, equals, rest = text.partition("=")
    if not name or not equals or not rest or not name.isprintable():
        raise RequestError(f"--adapter {text!r}; expected NAME=PATH or NAME=PATH:SCALE")
    path, colon, scale = rest.rpartition(":")
    if not colon or Path(rest).exists():
        return NamedAdapter(name, Path(rest))
    try:
        factor = float(scale)
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor):
        raise RequestError(f"--adapter {text!r}: scale {scale!r}; expected a number")
    return NamedAdapter(name, Path(path), factor)


def _rank(adapter: NamedAdapter) -> int:
    from lora_sdk.adapters.config import load_peft_config

    config = load_peft_config(adapter.path)
    return max(config.rank, *config.rank_pattern.values(), 1)
