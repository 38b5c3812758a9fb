"""`lora quantize`: writes a model folder with 8-bit or 4-bit weights."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.interrupt import ended_as_by_ctrl_c
from lora_sdk.cli.folding import for_people, show
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.model.kv_formats import KV_KINDS
from lora_sdk.model.weight_formats import schemes
from lora_sdk.quant.recipe import ACTIVATIONS, HEADS, METHODS

if TYPE_CHECKING:
    from lora_sdk.quant.quantize import Report
    from lora_sdk.quant.recipe import Recipe

ADVISED, WORTH = 0.02, 0.001
EXAMPLES = """\b
Examples:
  lora quantize DIR OUT --scheme w8a8
  lora quantize DIR OUT --scheme w4a8 --group 64 --calibration TEXT
  lora quantize DIR OUT --scheme w8a8 --activations static --kv int8
  lora quantize FILE.gguf OUT --scheme w4a16
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
              help="UTF-8 calibration text [included: a novel, documentation, code]")  # fmt: skip
@click.option("--windows", type=int, default=128, show_default=True, metavar="N",
              help="windows of 512 tokens of that text")  # fmt: skip
@click.option("--group", type=int, metavar="G",
              help="4-bit weights that share a scale, at most: 32, 64 or 128 [128]")  # fmt: skip
@click.option("--zero-points/--no-zero-points", "zeros", default=True,
              help="of 4-bit groups; without less exact, transformers reads it [with]")  # fmt: skip
@click.option("--lm-head", "head", type=click.Choice(HEADS),
              help="w8: INT8, one scale per output [w8 if cheap; w4a16: fp16]")  # fmt: skip
@click.option("--kv", type=click.Choice(KV_KINDS),
              help="of the folder's cache [int8-heads if cheap; w4a16: fp16]")  # fmt: skip
@click.option("--activations", type=click.Choice(ACTIVATIONS),
              help="scales of INT8 inputs: by row, or static [dynamic]")  # fmt: skip
@click.option("--rounding", "method", type=click.Choice(METHODS), default="gptq",
              show_default=True, help="error compensation, or round to nearest")  # fmt: skip
@click.option("--smooth/--no-smooth", default=True, show_default=True,
              help="scale the inputs of a matmul where its measured error falls")  # fmt: skip
@click.option("--rotate", is_flag=True,
              help="fold Hadamard rotations of stream and heads into the weights")  # fmt: skip
@click.option("--resume", is_flag=True,
              help="keep the work of an interrupted run, and go on from it")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def quantize(
    model: Path, out: Path, text: Path | None, windows: int, as_json: bool, scheme: str,
    group: int | None, zeros: bool, resume: bool, **options: Any,
) -> int:  # fmt: skip
    """Write MODEL, a Hugging Face folder or a GGUF file, into the new folder OUT with weights of
    8 or 4 bits.

    OUT is in compressed-tensors' format, which other programs can read. Weights of 8 bits have a
    scale per output, INT8 inputs one per row, K and V one per head. Factors between inputs and
    weights, and the rounding, are found on the calibration text. One layer is in memory at a time.
    The end of that text is held out: bits per byte before and after are measured on it, and what
    lm_head and the cache cost of them. Without --lm-head or --kv each stays FP16 where INT8 costs
    more than 0.5%.

    Progress goes to stderr, elsewhere than on a terminal as a line for each layer. Ctrl-C and
    SIGTERM leave nothing behind but with --resume.

    With --resume a run that was interrupted, or killed, leaves its layers in the folder .OUT.resume
    beside OUT, and the same command goes on there. The result is the same, byte for byte.
    """
    from lora_sdk.model.config import load_config
    from lora_sdk.quant.quantize import quantize
    from lora_sdk.quant.recipe import recommended
    from lora_sdk.quant.text import calibration_path, read_text, scored_bytes, windows_of
    from lora_sdk.text.tokenizer import Tokenizer

    began = time.monotonic()
    config = load_config(model)
    recipe = recommended(scheme, config, group, symmetric=not zeros, **options)
    if group is not None and recipe.group != group:
        show(f"--group {group} does not divide K of every matrix: {recipe.group}", err=True)
    source = text or calibration_path()
    tokenizer = Tokenizer(model, config.vocabulary)
    try:
        shown = ProgressBar("quantizing layers and lm_head", unit="step", lines=True)
        with ended_as_by_ctrl_c(), shown as progress:
            found, held = windows_of(read_text(source), tokenizer, config, windows)
            report = quantize(model, out, recipe, found, progress, resume, held)
    except KeyboardInterrupt:
        if resume:
            show("the layers done so far are kept; the same command goes on there", err=True)
        raise
    values = {
        "model": str(model),
        "out": str(out),
        "calibration": str(source),
        "calibration_tokens": sum(map(len, found)),
        "resumed_layers": report.resumed,
        "seconds_measured": time.monotonic() - began,
        **_values(report.recipe or recipe, report),
        **_bits_per_byte(report, sum(scored_bytes(tokenizer, window) for window in held)),
    }
    click.echo(json.dumps(values, indent=2) if as_json else for_people(_table(values)))
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
        "rotated": recipe.rotate,
        "bytes": report.bytes,
        "migration_strength": report.strengths,
        "lm_head_cost": report.costs.get("head"),
        "kv_cost": report.costs.get("kv"),
        "relative_error": report.errors,
        "worst": report.worst,
    }


def _bits_per_byte(report: Report, size: int) -> dict[str, float]:
    before, after = report.bits
    return {
        "held_out_bytes": size,
        "bits_per_byte_before": before / size,
        "bits_per_byte_after": after / size,
    }


def _table(values: dict[str, Any]) -> str:
    group = "" if values["group"] is None else f", groups of {values['group']}"
    zeros = " with zero points" if values["zero_points"] else ""
    inputs = "" if values["activations"] is None else f", {values['activations']} inputs"
    rotated = ", rotated" if values["rotated"] else ""
    before, after = values["bits_per_byte_before"], values["bits_per_byte_after"]
    resumed = values["resumed_layers"]
    return "\n".join(
        [
            f"written        {values['out']}, {values['bytes'] / 1e6:.1f} MB of weights",
            f"scheme         {values['scheme']}{group}{zeros}{inputs}{rotated}, "
            f"lm_head {values['lm_head']}, KV cache {values['kv']}",
            f"calibration    {values['calibration_tokens']} tokens of {values['calibration']}",
            f"bits per byte  {before:.4f} before, {after:.4f} after: {after / before - 1:+.2%} on "
            f"{values['held_out_bytes']} bytes held out",
            *_costs(values),
            "largest error  of the matrices of a kind, of their output (RMS)",
            *(f"  {name:40s} {error:.2%}" for name, error in _largest(values["relative_error"])),
            *([f"resumed        {resumed} layers of an earlier run"] if resumed else []),
            *_advice(values, after / before - 1),
            f"measured       {values['seconds_measured']:.1f} s",
        ]
    )


def _costs(values: dict[str, Any]) -> list[str]:
    """What lm_head and the cache cost in INT8, a line each, and which of them stayed FP16."""
    found = []
    for what, cost, form in (("lm_head", values["lm_head_cost"], values["lm_head"]),
                             ("KV cache", values["kv_cost"], values["kv"])):  # fmt: skip
        if cost is not None:
            stayed = ", too much: it stays FP16" if form == "fp16" else ""
            found.append(f"  {what} in INT8 {cost:+.2%}{stayed}")
    return found


def _largest(errors: dict[str, float]) -> list[tuple[str, float]]:
    """Of each kind of matrix (the end of its name) the one with the largest error."""
    found: dict[str, str] = {}
    for name, error in errors.items():
        kind = name.rpartition(".")[2]
        if kind not in found or error > errors[found[kind]]:
            found[kind] = name
    return sorted(((name, errors[name]) for name in found.values()), key=lambda pair: -pair[1])


def _advice(values: dict[str, Any], lost: float) -> list[str]:
    """What to try where more than 2% is lost."""
    if lost <= ADVISED:
        return []
    tries = []
    if values["group"] is not None and values["group"] > 32:
        tries.append(f"--group {values['group'] // 2}")
    if values["group"] is not None and not values["zero_points"]:
        tries.append("--zero-points")
    if values["activations"] == "static":
        tries.append("--activations dynamic")
    if values["scheme"] == "w4a8":
        tries.append("--scheme w4a16")
    if values["group"] is not None:
        tries.append("--scheme w8a8")
    dear = (("--lm-head", "lm_head", "lm_head_cost"), ("--kv", "kv", "kv_cost"))
    for option, what, cost in dear:
        if values[what] != "fp16" and (values[cost] or 0) > WORTH:
            tries.append(f"{option} fp16")
    return [f"advice         over {ADVISED:.0%} is lost; more exact: {', '.join(tries)}, or "
            "--calibration with text like that of the model's use"]  # fmt: skip
