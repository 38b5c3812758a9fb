"""`lora bench`: how fast a model runs on emulated boards, and what this machine could do."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lora_sdk.cli.progress import ProgressBar


@click.command("bench")
@click.option(
    "-m",
    "--model",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Hugging Face model folder [demo]",
)
@click.option(
    "--boards",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="emulated boards: 1, 2, 4 or 8",
)
@click.option("--threads", type=int, metavar="T", help="cores to use [all]")
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True, help="tokens")
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="new tokens")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def bench(
    model: Path | None,
    boards: int,
    threads: int | None,
    prompt: int,
    tokens: int,
    rounds: int,
    as_json: bool,
) -> int:
    """Measure decoding, prefill and loading beside this machine's memory.

    Every round loads the model, continues a random prompt greedily, reads a buffer of the bytes
    that a token reads with the fastest of several loops, and copies the weight files into fresh
    memory: figures of one round belong together. Medians over the rounds are printed, with the
    least and the greatest. Leave the machine alone meanwhile. `lora synth` writes a model of any
    published shape."""
    from lora_sdk.bench.measure import measure
    from lora_sdk.bench.report import table

    with ProgressBar("rounds", unit="round") as progress:
        report = measure(
            model,
            boards=boards,
            threads=threads,
            prompt=prompt,
            tokens=tokens,
            rounds=rounds,
            progress=progress,
        )
    click.echo(json.dumps(report, indent=2) if as_json else table(report))
    return 0
