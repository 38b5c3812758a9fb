"""`lora plan`: whether a model fits, and its placement. Nothing is loaded."""

from __future__ import annotations

import json
from typing import Any

import click

from lora_host.errors import PlacementError
from lora_sdk.cli.flags import flags
from lora_sdk.core.opening import plan_model
from lora_sdk.core.options import EngineOptions
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.report import report, table
from lora_sdk.plan.requests import request_lines, requests_report
from lora_sdk.plan.segment_kv import BeamLoad, beam_line, beam_memory
from lora_sdk.timing.planned import token_lines, token_times

OPTIONS = ("model", "boards", "cluster_file", "context", "max_sequences", "overlay", "kv")


EXAMPLES = """\b
Examples:
  lora plan --model DIR --boards 4
  lora plan --model DIR --cluster lab.yaml --context 4096 --sequences 8
  lora plan --model DIR --kv int8-heads --json
"""


@click.command("plan", epilog=EXAMPLES)
@flags(EngineOptions, *OPTIONS)
@click.option(
    "--beam-search",
    "beam_search",
    type=(int, int, int, int),
    metavar="BATCH BEAMS PROMPT RESPONSE",
    help="also print the size of the KV cache for this beam search",
)
@click.option(
    "--requests",
    "show_requests",
    is_flag=True,
    help="also print the memory requests per token, merged and unmerged",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def plan(
    beam_search: tuple[int, int, int, int] | None,
    show_requests: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the placement of a model in the boards' banks, and whether it fits.

    Only config.json and the headers of the weight files are read. The exit code is 1 if the model
    does not fit."""
    requested = EngineOptions(**options)
    Checkpoint.open(requested.folder)  # names and shapes of all tensors, headers only
    try:
        planned = plan_model(requested)
    except PlacementError as error:
        if not as_json:
            raise
        values = {"fits": False, "boards": requested.board_count, "error": str(error)}
        click.echo(json.dumps(values, indent=2))
        raise SystemExit(1) from None
    config, made, cluster = planned.config, planned.plan, planned.cluster_file
    found = report(made)
    found["modelled"] = token_times(config, made)
    found["model"] = str(requested.folder)
    found["cluster"] = cluster.name if cluster else None
    if beam_search is not None:
        found["beam_search"] = beam_memory(config, BeamLoad(*beam_search))
    if show_requests:
        found["requests"] = requests_report(made)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(table(found), nl=False)
    for line in token_lines(found["modelled"]):
        click.echo(line)
    if beam_search is not None:
        click.echo(beam_line(found["beam_search"]))
    if show_requests:
        for line in request_lines(found["requests"]):
            click.echo(line)
