"""`lora lab dse`: search for the fastest design that fits a board."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.folding import show
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar

if TYPE_CHECKING:
    from lora_host.overlay import Overlay
    from lora_lab.timing.dse import Candidate, Exploration


EXAMPLES = """\b
Examples:
  lora lab dse --model gpt2-345m
  lora lab dse --model gpt2-345m --board v80 --manifest found.yaml
"""


@click.command("dse", epilog=EXAMPLES)
@click.option("--board", default="u280", show_default=True, help="u280, u55c, v80 or vhk158")
@click.option("--boards", default=1, show_default=True, help="number of boards")
@click.option(
    "-m", "--model", "model", required=True, help="a shape by name, a folder or config.json"
)
@click.option("--in", "inputs", default=32, show_default=True, help="prompt length")
@click.option("--out", "outputs", default=256, show_default=True, help="new tokens")
@click.option("--precision", multiple=True, type=click.Choice(["fp16", "w8a8", "w4a8"]),
              help="precisions to search; default: all")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True,
              help="random seed of the search")  # fmt: skip
@click.option("--no-prefetch", is_flag=True, help="only designs without a prefetch buffer")
@click.option("--manifest", "output", type=OUTPUT, metavar="FILE",
              help="write the overlay manifest of the result; u280, u55c, v80")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def dse(
    board: str,
    boards: int,
    model: str,
    inputs: int,
    outputs: int,
    precision: tuple[str, ...],
    seed: int,
    no_prefetch: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Search array, tile, lanes, buffers, ports and precision for the lowest modelled latency.

    Limits are the board's resources and bandwidth. Every number is modelled."""
    from lora_lab.timing.dse import Exploration, base_overlay, manifest, manifest_boards
    from lora_sdk.model.shapes import find_config

    space: dict[str, tuple[Any, ...]] = {}
    if precision:
        space["precision"] = precision
    if no_prefetch:
        space["prefetch_bytes"] = (0,)
    if output is not None:
        base_overlay(board)  # refused before the search
    search = Exploration(board, boards, find_config(model), inputs, outputs, space)
    began = time.monotonic()
    with ProgressBar("searching", unit="generation") as progress:
        best = search.evolve(seed, progress=progress)
    took = time.monotonic() - began
    if not best.feasible:
        raise RequestError(f"no design of the space fits {board}; over: {dict(best.excess)}")
    facts = manifest(best, board) if board in manifest_boards() else None
    if output is not None:
        _write(output, facts, base_overlay(board))
    if as_json:
        found = {**_plain(search, best), "seconds_searched": took, "manifest": facts}
        click.echo(json.dumps(found, indent=2))
    else:
        show(_text(search, best, model, took))


def _write(path: Path, facts: dict[str, Any] | None, base: Overlay) -> None:
    import yaml

    try:
        path.write_text(yaml.safe_dump(facts, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: cannot be written: {error.strerror}") from None
    show(
        f"wrote {path}; lora plan --overlay {path} plans it, with longer times: overlays are "
        "dispatched by the firmware, which for small models is most of a token, and folders are "
        f"planned in the precision they have. To run it, copy {base.image_path} beside it; behind "
        f"XRT or SLASH also: lora overlay build {path}",
        err=True,
    )


NOTE = (
    "with dispatch by control in hardware, the host's accesses and checksums of weights; by the "
    "firmware that overlays have today it takes longer, a small model many times (lora plan "
    "--overlay); resources as LORA's were, not counts of this project's units (lora lab model "
    "--resources)"
)


def _plain(search: Exploration, best: Candidate) -> dict[str, Any]:
    return {
        "label": "modelled",
        "latency_ms": best.seconds * 1e3,
        "tokens_per_second": search.outputs / best.seconds,
        "breakdown": {name: value * 1e3 for name, value in best.totals.by.items()},
        "values": dict(best.values),
        "clock_hz": best.design.clock_hz,
        "resources": {
            name: {"count": getattr(best.resources, name), "share": share}
            for name, share in best.resources.shares(search.board).items()
        },
        "evaluated": search.evaluated,
        "notes": [NOTE],
    }


def _text(search: Exploration, best: Candidate, model: str, took: float) -> str:
    from lora_lab.timing.report import shares_text

    lines = [
        f"modelled: {best.seconds * 1e3:.2f} ms for {model} {search.inputs}:{search.outputs} on "
        f"{search.boards} x {search.board.name}, {search.outputs / best.seconds:.1f} tokens/s "
        f"({search.evaluated} designs in {took:.1f} s)",
        f"  of this: {shares_text(best.totals.by, best.seconds)}",
    ]
    for name, value in best.values.items():
        lines.append(f"  {name.replace('_', ' '):<16} {value}")
    for name, share in best.resources.shares(search.board).items():
        count = getattr(best.resources, name)
        lines.append(f"  {name.upper():<16} {count:.0f} ({share:.0%})")
    for precision in ("fp16", "w8a8"):
        if search.board.name == "u280":
            from lora_lab.timing.dse import paper_values

            paper = search.candidate(paper_values(precision))
            lines.append(f"  the paper's {precision.upper():<5} so charged: "
                         f"{paper.seconds * 1e3:.2f} ms")  # fmt: skip
    lines.append(f"  note: {NOTE}")
    return "\n".join(lines)
