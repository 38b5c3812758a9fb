"""`lora synth`: a checkpoint of a published shape with random weights."""

from __future__ import annotations

import time
from pathlib import Path

import click

from lora_sdk.cli.progress import ProgressBar
from lora_sdk.model.shapes import SHAPES


@click.command("synth", epilog=f"Shapes: {', '.join(SHAPES)}.")
@click.argument("config", metavar="CONFIG")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-s", "--seed", type=int, default=0, show_default=True, help="of the weights")
@click.option(
    "--dtype",
    type=click.Choice(["F16", "BF16", "F32"], case_sensitive=False),
    default="F16",
    show_default=True,
    help="type of the stored weights",
)
@click.option("--shards", type=int, default=1, show_default=True, help="number of weight files")
def synth(config: str, folder: Path, seed: int, dtype: str, shards: int) -> int:
    """Write a model folder with random weights, to measure without a download.

    CONFIG is a shape's name, a config.json or a folder that holds one; DIR must be new. Its text
    makes no sense; its speed is that of the real model."""
    from lora_sdk.synth import synthesise

    began = time.monotonic()
    with ProgressBar("writing") as progress:
        total = synthesise(
            config, folder, seed=seed, dtype=dtype.upper(), shards=shards, progress=progress
        )
    seconds = time.monotonic() - began
    size = f"{total / 1e9:.2f} GB of {dtype.upper()} weights"
    click.echo(f"{folder}: {size}, {seconds:.1f} s (measured)")
    return 0
