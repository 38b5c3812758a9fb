"""`lora plan`: whether a model fits, and its placement. Nothing is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import PlacementError, RequestError
from lora_sdk.adapters.slots import sharding_note
from lora_sdk.adapters.weights import load_adapter_weights
from lora_sdk.cli.adapters import adapter_flags, take_adapters
from lora_sdk.cli.flags import flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.laboratory import MISSING, laboratory
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.model_files import model_files
from lora_sdk.model.shapes import find_shape
from lora_sdk.model.weight_formats import schemes
from lora_sdk.opening.opening import plan_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.report import report, table
from lora_sdk.plan.requests import request_lines, requests_report
from lora_sdk.plan.segment_kv import BeamLoad, beam_lines, beam_memory

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

OPTIONS = ("model", "boards", "stages", "cluster_file", "context", "max_sequences", "overlay", "kv",
           "gguf_weights")  # fmt: skip

MODEL = {
    "help": "model folder, GGUF file, ORG/NAME in the Hugging Face cache, or a shape (llama2-7b)"
}

EXAMPLES = """\b
Examples:
  lora plan --model DIR --boards 4
  lora plan --model DIR --cluster lab.yaml --context 4096 --sequences 8
  lora plan --model DIR --kv int8-heads --json
  lora plan --model llama2-7b --boards 4
  lora plan --model llama2-7b --overlay lora_w4a8_u55c
  lora plan --model llama2-70b --boards 64 --stages 4
  lora plan --model DIR --adapter fix=DIR2 --max-adapters 8
  lora plan --model DIR --beams 4 --batch 32 --prompt 1024 --response 1024
"""


@click.command("plan", epilog=EXAMPLES)
@flags(EngineOptions, *OPTIONS, model=MODEL)
@adapter_flags
@click.option(
    "--beams", type=int, metavar="N", help="also print the KV cache of a beam search with N beams"
)
@click.option("--batch", type=int, metavar="N", help="with --beams: prompts [1]")
@click.option("--prompt", type=int, metavar="N", help="with --beams: tokens of a prompt [1024]")
@click.option("--response", type=int, metavar="N", help="with --beams: new tokens [1024]")
@click.option(
    "--requests",
    "show_requests",
    is_flag=True,
    help="also print the memory requests per token, merged and unmerged",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def plan(
    beams: int | None,
    batch: int | None,
    prompt: int | None,
    response: int | None,
    show_requests: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the placement of a model in the boards' banks, and whether it fits.

    Only config.json, the headers of the weight files and adapters are read; a folder without
    weights, or the name of a shape (llama2-7b), is planned as it is. The exit code is 1 if the
    model does not fit."""
    load = _beam_load(beams, batch, prompt, response)
    name = options["model"]
    adapters, more = take_adapters(options)
    shape = _shape(name, options["overlay"])
    if shape is not None:
        options["model"] = None
    requested = EngineOptions(**options, **more)
    if shape is None and model_files(requested.folder).has_weights:
        Checkpoint.open(requested.folder)  # names and shapes of all tensors, headers only
    try:
        planned = plan_model(requested, shape)
    except PlacementError as error:
        if not as_json:
            raise
        values = {"fits": False, "boards": requested.board_count, "error": str(error)}
        click.echo(json.dumps(values, indent=2))
        raise SystemExit(1) from None
    config, made, cluster = planned.config, planned.plan, planned.cluster_file
    for one in adapters:  # AdapterError: it is not this model's, or its mode cannot shard it
        sharding_note(made, one.name, load_adapter_weights(one.path, config, one.scale))
    found = report(made)
    lab = laboratory()
    found["modelled"] = lab and lab.token_times(config, made)
    found["model"] = str(requested.folder if shape is None else name)
    found["adapters"] = {"slots": requested.max_adapters, "named": [one.name for one in adapters]}
    found["cluster"] = cluster.name if cluster else None
    if load is not None:
        found["beam_search"] = beam_memory(made, load)
        largest = found["beam_search"]["largest_batch"]
        modelled = lab and lab.beam_times(config, made, load, largest)
        found["beam_search"]["modelled"] = modelled
    if show_requests:
        found["requests"] = requests_report(made)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if shape is not None:
        show(f"{name}, a shape without weights, planned as {_formats(config, made.board.name)}")
    show(table(found).rstrip("\n"))
    for line in [MISSING] if lab is None else lab.token_lines(found["modelled"]):
        show(line)
    if load is not None:
        lines = beam_lines(found["beam_search"])
        if lab is not None:
            lines += lab.beam_time_lines(found["beam_search"]["modelled"]) or [
                _too_long(load, config)
            ]
        for line in lines:
            show(line)
    if show_requests:
        for line in request_lines(found["requests"]):
            show(line)


def _shape(name: str | None, overlay: str | None) -> ModelConfig | None:
    """A shape in the precision of the overlay that is named, else in FP16, as `lora lab model`
    takes it; None where it is no shape."""
    from lora_host.overlay import load_overlay

    config = find_shape(name)
    if config is None:
        return None
    precision = "fp16" if overlay is None else load_overlay(overlay).precision
    return config if precision not in schemes() else quantized_as(config, precision)


def _formats(config: ModelConfig, board: str) -> str:
    """The weights and the KV cache, for people."""
    found = config.quantization
    if found is None:
        return f"FP16; --overlay lora_w4a8_{board} has fewer bits"
    return f"{found.scheme.upper()} with {found.kv} K and V, the overlay's precision"


def _too_long(load: BeamLoad, config: ModelConfig) -> str:
    """Why a beam search has no times."""
    positions = load.prompt + load.response - 1
    if positions > config.positions:
        return (
            f"  no times: {load.prompt} and {load.response} tokens take {positions} positions, "
            f"the model has {config.positions}; give a shorter --prompt or --response"
        )
    return (
        f"  no times: no prompt with {load.beams} beams fits the boards and the overlay's sequences"
    )


def _beam_load(
    beams: int | None, batch: int | None, prompt: int | None, response: int | None
) -> BeamLoad | None:
    """The beam search to plan for, None without --beams."""
    if beams is not None:
        given = (batch, beams, prompt, response)
        chosen = (1, beams, 1024, 1024)
        return BeamLoad(*(c if g is None else g for g, c in zip(given, chosen, strict=True)))
    for name, value in (("batch", batch), ("prompt", prompt), ("response", response)):
        if value is not None:
            raise RequestError(f"--{name} needs --beams")
    return None
