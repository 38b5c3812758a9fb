"""`lora bench`: the speed of a model on emulated boards, and the limits of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lora_sdk.cli.flags import flags
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.core.options import EngineOptions

EMULATED = {"help": "emulated boards: 1, 2, 4, 8, 16, 32 or 64", "default": 1, "unset": ""}
CORES = {"help": "cores to use", "unset": "all"}


EXAMPLES = """\b
Examples:
  lora bench --boards 2
  lora bench --model DIR --boards 4 --threads 2 --rounds 3
  lora synth gpt2-345m DIR && lora bench --model DIR --json
"""


@click.command("bench", epilog=EXAMPLES)
@flags(EngineOptions, "model", "boards", "threads", boards=EMULATED, threads=CORES)
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True, help="tokens")
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="new tokens")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def bench(
    model: str | None,
    boards: int,
    threads: int | None,
    prompt: int,
    tokens: int,
    rounds: int,
    as_json: bool,
) -> int:
    """Measure decoding, prefill and loading, and this machine's memory bandwidth.

    Every round loads the model, decodes greedily from a random prompt, reads a buffer as large as
    the bytes that a token reads (with the fastest of several loops), and copies the weight files to
    fresh memory. The median of each figure is printed with min and max. Keep the machine idle
    meanwhile. `lora synth` writes a model of any published shape."""
    from lora_sdk.bench.measure import measure
    from lora_sdk.bench.report import table

    with ProgressBar("rounds", unit="round") as progress:
        report = measure(
            Path(model) if model else None,
            boards=boards,
            threads=threads,
            prompt=prompt,
            tokens=tokens,
            rounds=rounds,
            progress=progress,
        )
    click.echo(json.dumps(report, indent=2) if as_json else table(report))
    return 0
