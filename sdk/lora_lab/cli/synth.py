"""`lora lab synth`: a checkpoint of a published shape with random weights."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import click

from lora_sdk.cli.folding import show
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.model.kv_formats import KV_KINDS, KvKind
from lora_sdk.model.shapes import SHAPES
from lora_sdk.quant.recipe import HEADS, SCHEMES, HeadKind, Recipe

_LISTED = textwrap.fill(f"Shapes: {', '.join(SHAPES)}.", 76, break_on_hyphens=False)


@click.command("synth", epilog=f"\b\n{_LISTED}")
@click.argument("config", metavar="CONFIG")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-s", "--seed", type=int, default=0, show_default=True, help="random seed of the weights"
)
@click.option(
    "--dtype",
    type=click.Choice(["F16", "BF16", "F32"], case_sensitive=False),
    default="F16",
    show_default=True,
    help="type of the stored weights",
)
@click.option("--shards", type=int, default=1, show_default=True, help="number of weight files")
@click.option(
    "--scheme",
    type=click.Choice(SCHEMES),
    help="quantized: integer weights in the format of lora quantize",
)
@click.option("--group", type=int, default=128, show_default=True, help="4-bit weights per scale")
@click.option(
    "--lm-head",
    "head",
    type=click.Choice(HEADS),
    default="w8",
    show_default=True,
    help="lm_head of a quantized model",
)
@click.option(
    "--kv",
    type=click.Choice(KV_KINDS),
    default="int8",
    show_default=True,
    help="KV cache of a quantized model",
)
def synth(
    config: str,
    folder: Path,
    seed: int,
    dtype: str,
    shards: int,
    scheme: str | None,
    group: int,
    head: HeadKind,
    kv: KvKind,
) -> int:
    """Write a model folder with random weights, to measure without a download.

    CONFIG is the name of a shape, a config.json or a folder with one. DIR must be new. The text is
    meaningless, but the speed is that of the real model.

    \b
    lora lab synth gpt2-345m DIR
    lora lab synth gpt2-345m DIR --scheme w8a8
    lora lab synth llama2-7b DIR --scheme w4a8 --group 64
    """
    from lora_lab.synth.folder import synthesize

    began = time.monotonic()
    recipe = Recipe(scheme, group=group, head=head, kv=kv) if scheme else None
    with ProgressBar("writing") as progress:
        total = synthesize(
            config,
            folder,
            seed=seed,
            dtype=dtype.upper(),
            shards=shards,
            recipe=recipe,
            progress=progress,
        )
    seconds = time.monotonic() - began
    size = f"{total / 1e9:.2f} GB of {scheme or dtype.upper()} weights"
    show(f"{folder}: {size}, {seconds:.1f} s (measured)")
    return 0
