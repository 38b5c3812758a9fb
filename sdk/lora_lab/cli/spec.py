"""`lora lab spec`: tune speculative decoding offline, and show the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_lab.cli.spec_tune import collect, tune
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.lazy_group import WholeGroup

EPILOG = """\b
Examples:
  lora lab spec tune MODEL DRAFT --text held_out.txt --boards 1 --boards 4
  lora lab spec tune MODEL lookup --text held_out.txt --objective wall
  lora lab spec collect MODEL DRAFT --text held_out.txt -o ranks.npz
  lora lab spec tune MODEL DRAFT --acceptance ranks.npz --board v80
  lora lab spec show MODEL
  lora lab spec design flightllm-sd llama3.1-8b --board v80

DRAFT is the folder of a draft model or of an EAGLE-3 head, or the word lookup.
lora-run --speculative auto uses the table that tune writes."""


@click.group("spec", epilog=EPILOG, cls=WholeGroup)
def spec() -> None:
    """Choose trees and verification lengths for speculative decoding."""


spec.add_command(tune)
spec.add_command(collect)


FULL = "modelled: everything counted; wall: by the clock, emulated; --full prints the tables"
SHOW = """\b
Examples:
  lora lab spec show
  lora lab spec show --full
  lora lab spec show DIR --json
"""


@spec.command("show", epilog=SHOW)
@click.argument("where", metavar="[MODEL|FILE]", required=False, type=click.Path(path_type=Path))
@click.option("-m", "--model", "model", type=click.Path(path_type=Path), metavar="MODEL",
              help="the same as MODEL")  # fmt: skip
@click.option("--full", is_flag=True, help="each table: tokens per round, times by context")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def show(where: Path | None, model: Path | None, full: bool, as_json: bool) -> None:
    """Print what the tables of a model's folder (default: the demo model's) or of a file gain."""
    from lora_lab.cli.spec_report import as_dict, reports, summary
    from lora_sdk.model.demo import demo_model_path
    from lora_sdk.spec.table import FILE_NAME, load_tables

    if where is not None and model is not None:
        raise RequestError(f"the model is named twice, {where} and {model}; omit one")
    path = where or model or demo_model_path()
    path = path / FILE_NAME if path.is_dir() else path
    if not path.exists():
        raise RequestError(f"{path}: no such table; lora lab spec tune writes one")
    tables = load_tables(path)
    if as_json:
        click.echo(json.dumps([as_dict(table) for table in tables], indent=2))
    else:
        click.echo(for_people(reports(tables) if full else f"{summary(tables)}\n{FULL}"))


DESIGN = """\b
Examples:
  lora lab spec design own-u280 llama2-7b --context 1024
"""


RIDGE = "ridge: the fewest rows that are verified at 98% of the highest rate, in rows a second"


@spec.command("design", epilog=DESIGN)
@click.argument("design")
@click.argument("model")
@click.option("--board", help="u280, u55c, v80, vhk158 or u250; default: the design's first")
@click.option("--boards", default=1, show_default=True, help="number of boards")
@click.option("-c", "--context", "contexts", type=int, multiple=True,
              help="context; may be repeated [powers of two, 128 to 16384]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def design(
    design: str,
    model: str,
    board: str | None,
    boards: int,
    contexts: tuple[int, ...],
    as_json: bool,
) -> None:
    """The best verification length of a design with its published draft.

    Modelled. Nothing is run and no trees are searched: AAT, tokens a round, is the published curve,
    below its rows interpolated."""
    from lora_lab.spec_tuning.modelled import DesignTimes
    from lora_lab.spec_tuning.roofline import roofline
    from lora_lab.spec_tuning.tune import FixedDraft
    from lora_lab.timing.model import MAX_CONTEXT, MAX_LENGTH, check_positions
    from lora_lab.timing.target import make_target, notes_of
    from lora_sdk.model.shapes import find_config
    from lora_sdk.plan.partition import check_board_count

    check_board_count(boards)
    config = find_config(model)
    target = make_target(design, board, config, boards)
    times = DesignTimes(target)
    assert target.draft is not None  # DesignTimes checked it
    found: list[dict[str, Any]] = []
    powers = [1 << power for power in range(7, 15) if 1 << power <= config.positions]
    for context in contexts or powers or [config.positions]:
        check_positions(config, context)
        if not 1 <= context <= MAX_CONTEXT:
            raise RequestError(f"context {context} is out of range: 1 to {MAX_CONTEXT}")
        curve = FixedDraft(target.draft, context)
        line = roofline(times, curve, context, range(2, MAX_LENGTH + 1))
        best = line.best()
        found.append(
            {
                "context": context,
                "rows": best.rows,
                "aat": best.aat,
                "aat_basis": target.draft.basis(best.rows),
                "ridge": line.ridge,
                "plain_tokens_per_second": line.plain,
                "tokens_per_second": best.effective,
                "speedup": line.speedup(best.rows),
            }
        )
    notes = notes_of([(target, entry["context"]) for entry in found])
    if as_json:
        values = {"label": "modelled", "design": target.name, "board": target.board,
                  "model": model, "draft": target.draft.title, "contexts": found,
                  "notes": list(notes)}  # fmt: skip
        click.echo(json.dumps(values, indent=2))
        return
    head = f"modelled: {target.name} on {target.board}, {model}, {target.draft.title}"
    click.echo(for_people(head))
    click.echo(" context  rows   AAT  ridge  plain/s  tokens/s  speed-up")
    for entry in found:
        click.echo(
            f"{entry['context']:8} {entry['rows']:5} {entry['aat']:5.2f} {entry['ridge']:6} "
            f"{entry['plain_tokens_per_second']:8.2f} {entry['tokens_per_second']:9.2f} "
            f"{entry['speedup']:9.2f}"
        )
    click.echo(for_people(f"  note: {RIDGE}"))
    for basis in dict.fromkeys(entry["aat_basis"] for entry in found):
        rows = sorted({entry["rows"] for entry in found if entry["aat_basis"] == basis})
        told = f"{', '.join(map(str, rows))} rows" if len(rows) > 1 else counted(rows[0], "row")
        click.echo(for_people(f"  note: AAT of {told}: {basis}"))
    for note in notes:
        if note != "modelled":
            click.echo(for_people(f"  note: {note}"))
