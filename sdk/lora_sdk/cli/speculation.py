"""Speculation options of `lora-run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import PROPOSERS
from lora_sdk.spec.resolve import (
    AUTO,
    ResolvedSpeculation,
    SpeculationRequest,
    Target,
    resolve,
)

Function = TypeVar("Function", bound=Callable[..., Any])


def speculation_flags(function: Function) -> Function:
    """--speculative and its related options."""
    for option in (
        click.option("--spec-objective", type=click.Choice(["modelled", "wall"]),
                     help="table of auto [modelled; wall if emulated]"),
        click.option("--proposer", type=click.Choice(PROPOSERS), help="kind of draft [by folder]"),
        click.option("-md", "--draft", "--spec-draft-model", "draft", metavar="DIR",
                     help="draft model or EAGLE-3 head [from the model's table]"),
        click.option("--speculative", default=AUTO, show_default=True, metavar="auto|off|N",
                     help="draft tokens and verify them together, N rows per verification"),
    ):  # fmt: skip
        function = option(function)
    return function


def take_speculation(
    options: dict[str, Any], engine_arguments: Mapping[str, Any]
) -> ResolvedSpeculation:
    """Remove the options of `speculation_flags`. Returns the engine's speculation."""
    draft = options.pop("draft")
    request = SpeculationRequest(
        options.pop("speculative").strip().lower(),
        None if draft is None else Path(draft),
        options.pop("proposer"),
        options.pop("spec_objective"),
    )
    return resolve(request, _target(engine_arguments))


def _target(arguments: Mapping[str, Any]) -> Target:
    from lora_host.device_uri import is_model
    from lora_sdk.model.config import load_config
    from lora_sdk.plan.overlay_choice import choose_overlay

    options = EngineOptions(**arguments)
    config = options.held(load_config(options.folder))
    overlay = options.overlay or choose_overlay(config, options.board_kind)
    emulated = all(map(is_model, options.uris))
    return Target(options.folder, overlay, options.board_count, emulated)
