"""`lora plan`: will it fit, and where does it lie; nothing is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import click

from lora_host.boards import load_board
from lora_host.errors import PlacementError
from lora_host.overlay import load_overlay
from lora_sdk.core.opening import connected
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.demo import demo_model_path
from lora_sdk.model.kv_formats import KV_KINDS, KvKind
from lora_sdk.model.quantization import with_kv_cache
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.report import report, table
from lora_sdk.plan.requests import request_lines, requests_report
from lora_sdk.plan.segment_kv import BeamLoad, beam_line, beam_memory
from lora_sdk.plan.topology import route
from lora_sdk.timing.planned import token_lines, token_times


@click.command("plan")
@click.option("--model", "model", type=click.Path(path_type=Path), help="Hugging Face model folder")
@click.option("--boards", default=1, show_default=True, help="number of boards: 1, 2, 4 or 8")
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="cluster file: boards and cabling; default: a ring",
)
@click.option("-c", "--context", type=int, help="positions of a sequence; default: what fits")
@click.option("--sequences", type=int, help="sequences open at once; default: up to 16")
@click.option("--overlay", help="overlay name or folder [one for the U280 that takes the model]")
@click.option(
    "--kv",
    type=click.Choice(["auto", *KV_KINDS]),
    default="auto",
    show_default=True,
    help="type of the KV cache; auto: as the checkpoint says",
)
@click.option(
    "--beam-search",
    "beam_search",
    type=(int, int, int, int),
    metavar="BATCH BEAMS PROMPT RESPONSE",
    help="also print the KV cache that such a beam search needs",
)
@click.option(
    "--requests",
    "show_requests",
    is_flag=True,
    help="also print the memory requests of a token, merged and not",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def plan(
    model: Path | None,
    boards: int,
    cluster_file: Path | None,
    context: int | None,
    sequences: int | None,
    overlay: str | None,
    kv: str,
    beam_search: tuple[int, int, int, int] | None,
    show_requests: bool,
    as_json: bool,
) -> None:
    """Print where a model would lie on the boards' banks, and whether it fits.

    Only config.json and the headers of the weight files are read. The exit code is 1 where the
    model does not fit."""
    folder = model or demo_model_path()
    config = load_config(folder)
    Checkpoint.open(folder, config)  # names and shapes of all tensors, headers only
    config = with_kv_cache(config, None if kv == "auto" else cast("KvKind", kv))
    chosen = load_overlay(overlay or choose_overlay(config, "u280"))
    board = load_board(chosen.board.name)
    cluster = connected(cluster_file, boards) if cluster_file else None
    way = route(cluster.cables, boards) if cluster else None
    try:
        made = make_plan(config, chosen, board, boards, context, sequences, way)
    except PlacementError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"fits": False, "boards": boards, "error": str(error)}, indent=2))
        raise SystemExit(1) from None
    found = report(made)
    found["modelled"] = token_times(config, made)
    found["model"] = str(folder)
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
