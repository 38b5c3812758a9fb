"""`lora quantize`: writes a model folder with 8-bit or 4-bit weights."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_sdk.cli.progress import ProgressBar
from lora_sdk.model.kv_formats import KV_KINDS
from lora_sdk.model.weight_formats import of_scheme, schemes

if TYPE_CHECKING:
    from lora_sdk.quant.quantize import Report
    from lora_sdk.quant.recipe import Recipe

EXAMPLES = """\b
Examples:
  lora quantize DIR OUT --scheme w8a8
  lora quantize DIR OUT --scheme w4a8 --group 64 --calibration TEXT
  lora quantize DIR OUT --scheme w8a8 --activations dynamic
  lora quantize DIR OUT --scheme w4a16 --lm-head fp16
  lora quantize DIR OUT --scheme w4a8 --resume
  lora eval -m OUT --text TEXT --reference DIR
"""


@click.command("quantize", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--scheme",
    required=True,
    type=click.Choice(schemes()),
    help="bits of weights and of activations",
)
@click.option("--calibration", "text", metavar="FILE", type=click.Path(path_type=Path),
              help="UTF-8 calibration text [included Python sources and prose]")  # fmt: skip
@click.option("--windows", type=int, default=16, show_default=True, metavar="N",
              help="windows of 512 tokens of that text")  # fmt: skip
@click.option("--group", type=int, default=128, show_default=True, metavar="G",
              help="4-bit weights that share a scale: 32, 64 or 128")  # fmt: skip
@click.option("--zero-points", "zeros", is_flag=True,
              help="groups with zero points: more exact, less portable")  # fmt: skip
@click.option("--lm-head", "head", type=click.Choice(["fp16", "w8"]), default="w8",
              show_default=True, help="w8: INT8, one scale per output")  # fmt: skip
@click.option("--kv", type=click.Choice(KV_KINDS),
              help="KV cache format of the folder [int8; w4a16: fp16]")  # fmt: skip
@click.option("--activations", type=click.Choice(["static", "dynamic"]), default="static",
              show_default=True, help="scales of INT8 inputs: calibrated, or by row")  # fmt: skip
@click.option("--rounding", "method", type=click.Choice(["gptq", "nearest"]), default="gptq",
              show_default=True, help="error compensation, or round to nearest")  # fmt: skip
@click.option("--smooth/--no-smooth", default=True, show_default=True,
              help="move outliers of the inputs into the weights first")  # fmt: skip
@click.option("--resume", is_flag=True,
              help="keep the work of an interrupted run, and go on from it")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def quantize(
    model: Path, out: Path, text: Path | None, windows: int, as_json: bool, kv: str | None,
    zeros: bool, resume: bool, **options: Any,
) -> int:  # fmt: skip
    """Write MODEL, a Hugging Face folder or a GGUF file, into the new folder OUT with weights of
    8 or 4 bits.

    OUT is in compressed-tensors' format, which other programs can read. Inputs of INT8 matmuls and
    q, k and v have one static scale each; with --activations dynamic each row of inputs has its
    own, which boards compute. The scales and the smoothing strength of each layer
    (SmoothQuant) are found on the calibration text. One layer is in memory at a time.

    With --resume a run that was interrupted, or killed, leaves its layers in the folder .OUT.resume
    beside OUT, and the same command goes on there. The result is the same, byte for byte.
    """
    from lora_sdk.model.config import load_config
    from lora_sdk.quant.quantize import quantize
    from lora_sdk.quant.recipe import Recipe
    from lora_sdk.quant.text import calibration_path, read_text, windows_of
    from lora_sdk.text.tokenizer import Tokenizer

    began = time.monotonic()
    default = "int8" if of_scheme(options["scheme"]).integer else "fp16"
    recipe = Recipe(kv=kv or default, symmetric=not zeros, **options)  # type: ignore[arg-type]
    config = load_config(model)
    source = text or calibration_path()
    found = windows_of(read_text(source), Tokenizer(model, config.vocabulary), config, windows)
    try:
        with ProgressBar("quantizing", unit="layer") as progress:
            report = quantize(model, out, recipe, found, progress, resume)
    except KeyboardInterrupt:
        if resume:
            click.echo("the layers done so far are kept; the same command goes on there", err=True)
        raise
    values = {
        "model": str(model),
        "out": str(out),
        "calibration": str(source),
        "calibration_tokens": sum(map(len, found)),
        "resumed_layers": report.resumed,
        "seconds_measured": time.monotonic() - began,
        **_values(recipe, report),
    }
    click.echo(json.dumps(values, indent=2) if as_json else _table(values))
    return 0


def _values(recipe: Recipe, report: Report) -> dict[str, Any]:
    return {
        "scheme": recipe.scheme,
        "group": recipe.group if recipe.four_bit else None,
        "zero_points": recipe.four_bit and not recipe.symmetric,
        "lm_head": recipe.head,
        "kv": recipe.kv,
        "activations": recipe.activations if recipe.integer else None,
        "rounding": recipe.method,
        "bytes": report.bytes,
        "migration_strength": report.strengths,
        "relative_error": report.errors,
        "worst": report.worst,
    }


def _table(values: dict[str, Any]) -> str:
    worst = values["worst"]
    group = "" if values["group"] is None else f", groups of {values['group']}"
    dynamic = ", dynamic inputs" if values["activations"] == "dynamic" else ""
    return "\n".join(
        [
            f"written        {values['out']}, {values['bytes'] / 1e6:.1f} MB of weights",
            f"scheme         {values['scheme']}{group}{dynamic}, lm_head {values['lm_head']}, "
            f"KV cache {values['kv']}",
            f"calibration    {values['calibration_tokens']} tokens of {values['calibration']}",
            f"largest error  {worst}: {values['relative_error'][worst]:.2%} of its output (RMS)",
            *(
                [f"resumed        {values['resumed_layers']} layers of an earlier run"]
                if values["resumed_layers"]
                else []
            ),
            f"measured       {values['seconds_measured']:.1f} s",
        ]
    )
