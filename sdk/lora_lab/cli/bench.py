"""`lora lab bench`: the speed of a model on emulated boards, and the limits of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.flags import flags
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.given import was_given
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.opening.options import EngineOptions

EMULATED = {"help": "emulated boards: 1, 2, 4, 8, 16, 32 or 64", "default": 1, "unset": ""}
CORES = {"help": "cores to use", "unset": "all"}
OF_A_MODEL = ("model", "boards", "prompt", "tokens")


EXAMPLES = """\b
Examples:
  lora lab bench --boards 2
  lora lab bench --model DIR --boards 4 --threads 2 --rounds 3
  lora lab synth gpt2-345m DIR && lora lab bench --model DIR --json
  lora lab bench --suite --threads 2 > figures.md
  lora lab bench --suite --only together --only long-context --plot rates.svg
"""


@click.command("bench", epilog=EXAMPLES)
@flags(EngineOptions, "model", "boards", "threads", boards=EMULATED, threads=CORES)
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True, help="tokens")
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="new tokens")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--suite", is_flag=True, help="all figures that have a floor, as Markdown")
@click.option("--only", multiple=True, metavar="NAME",
              help="with --suite: one measurement; may be repeated")  # fmt: skip
@click.option("--plot", type=OUTPUT, metavar="FILE",
              help="with --suite: draw tokens/s, .png or .svg")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.pass_context
def bench(
    invoked: click.Context,
    /, suite: bool, only: tuple[str, ...], plot: Path | None, as_json: bool,
    **of_a_model: Any,
) -> int:  # fmt: skip
    """Measure decoding, prefill and loading, and this machine's memory bandwidth.

    Every round loads the model, decodes greedily from a random prompt, reads a buffer as large as
    the bytes that a token reads (with the fastest of several loops), and copies the weight files to
    fresh memory. The median of each figure is printed with min and max. Keep the machine idle
    meanwhile. `lora lab synth` writes a model of any published shape.

    --suite writes models of several shapes into a temporary folder and measures them beside floors,
    which make bench holds them to, and goals. --only takes decode, demo-size, prefill, together,
    long-context or large (LLaMA2-7B: 12 GB of memory, 5 GB of disk)."""
    if suite:
        given = [name for name in OF_A_MODEL if was_given(invoked, name)]
        if given:
            raise RequestError(f"--{given[0]} does not go with --suite, which has its own models")
        return _suite(only, of_a_model["rounds"], of_a_model["threads"], plot, as_json)
    if only or plot:
        raise RequestError(f"--{'only' if only else 'plot'} needs --suite")
    return _model(as_json=as_json, **of_a_model)


def _model(as_json: bool, model: str | None, **settings: Any) -> int:
    from lora_lab.bench.measure import measure
    from lora_lab.bench.report import table

    with ProgressBar("rounds", unit="round", lines=True) as progress:
        report = measure(Path(model) if model else None, progress=progress, **settings)
    click.echo(json.dumps(report, indent=2) if as_json else for_people(table(report)))
    return 0


def _suite(
    only: tuple[str, ...], rounds: int, threads: int | None, plot: Path | None, as_json: bool
) -> int:
    from lora_lab.bench.plots import plot_curves
    from lora_lab.bench.suite import markdown, run_suite

    with ProgressBar("measurements", unit="measurement", lines=True) as progress:
        report = run_suite(only, rounds=rounds, threads=threads, progress=progress)
    click.echo(json.dumps(report, indent=2) if as_json else for_people(markdown(report)))
    if plot is not None:
        plot_curves(report, plot)
        click.echo(f"wrote {plot}", err=True)
    return 0
