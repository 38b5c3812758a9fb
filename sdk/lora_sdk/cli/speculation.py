"""Options of `lora-run` that say who drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from lora_sdk.core.options import EngineOptions
from lora_sdk.spec.opening import PROPOSERS
from lora_sdk.spec_tuning.resolve import AUTO, Answer, SpeculationRequest, Target, resolve

Function = TypeVar("Function", bound=Callable[..., Any])


def speculation_flags(function: Function) -> Function:
    """--speculative and what belongs to it."""
    for option in (
        click.option("--spec-objective", type=click.Choice(["modelled", "wall"]),
                     help="table that auto follows [modelled; wall on emulated boards, if any]"),
        click.option("--proposer", type=click.Choice(PROPOSERS), help="kind of draft [its own]"),
        click.option("-md", "--draft", "--spec-draft-model", "draft", metavar="DIR",
                     help="draft model or EAGLE-3 head [the model's table names one]"),
        click.option("--speculative", default=AUTO, show_default=True, metavar="auto|off|N",
                     help="draft tokens and verify them together, N rows a verification"),
    ):  # fmt: skip
        function = option(function)
    return function


def take_speculation(options: dict[str, Any], engine_arguments: Mapping[str, Any]) -> Answer:
    """Take the options of `speculation_flags` out: what the engine is opened with."""
    draft = options.pop("draft")
    request = SpeculationRequest(
        options.pop("speculative").strip().lower(),
        None if draft is None else Path(draft),
        options.pop("proposer"),
        options.pop("spec_objective"),
    )
    return resolve(request, _target(engine_arguments))


def _target(arguments: Mapping[str, Any]) -> Target:
    from lora_host.cluster_file import is_emulated, load_cluster
    from lora_sdk.model.config import load_config
    from lora_sdk.plan.overlay_choice import choose_overlay

    options = EngineOptions(**arguments)
    uris = list(options.devices)
    if options.cluster_file is not None:
        uris = [entry.uri for entry in load_cluster(options.cluster_file).boards]
    overlay = options.overlay or choose_overlay(load_config(options.folder), options.board_kind)
    return Target(options.folder, overlay, options.board_count, all(map(is_emulated, uris)))
