"""`lora eval`: how well a model predicts a text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.naming import counted
from lora_sdk.cli.flags import MODEL_FLAGS, flags
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.opening.options import EngineOptions

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine


MAX_TEXT_BYTES = 256 << 20
EXAMPLES = """\b
Examples:
  lora eval --text FILE --boards 4
  lora eval -m QUANTIZED --text FILE --reference ORIGINAL
"""


@click.command("eval", epilog=EXAMPLES)
@click.option("--text", "path", required=True, metavar="FILE", help="UTF-8 text to score")
@click.option(
    "--stride",
    type=int,
    metavar="N",
    help="tokens scored in each window but the first [half the context]",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="model for the float32 reference [the same]",
)
@click.option("--no-reference", "alone", is_flag=True, help="no float32 reference")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@flags(EngineOptions, *MODEL_FLAGS)
def evaluate(
    path: str,
    stride: int | None,
    reference: Path | None,
    alone: bool,
    as_json: bool,
    **engine_arguments: Any,
) -> int:
    """Print bits per byte and perplexity of a text.

    The text is run in windows of the context's length. In the first window all tokens are scored.
    In the others the last --stride tokens are, with the tokens before them as context. The first
    token is predicted from the tokenizer's BOS token. Without one it counts as uniform over the
    vocabulary. The reference scores the same windows in NumPy float32, where only the stored
    weights are rounded.
    """
    from lora_host.errors import RequestError
    from lora_host.regular_file import read_regular
    from lora_sdk.engine.engine import Engine
    from lora_sdk.engine.evaluation import evaluate_text

    file = Path(path)
    try:
        data = read_regular(file, MAX_TEXT_BYTES)
    except FileNotFoundError:
        raise RequestError(f"text file {path} does not exist; expected UTF-8 text") from None
    except OSError as error:
        raise RequestError(f"text file {path}: {error.strerror or error}") from None
    opened = time.monotonic()
    with (
        ProgressBar("loading") as loading,
        Engine(progress=loading, max_sequences=1, **engine_arguments) as engine,
    ):
        loading.close()
        began = time.monotonic()
        with ProgressBar("scoring", unit="token") as scoring:
            found = evaluate_text(engine, data, stride, scoring)
        report = {
            "bits_per_byte": found.bits_per_byte,
            "perplexity": found.perplexity,
            "tokens": found.tokens,
            "bytes": found.bytes,
            "first_token": found.first_token,
            "context": found.context,
            "stride": found.stride,
            "windows": found.windows,
            "model": str(engine.model_path),
            "boards": engine.cluster.size,
            "seconds_loading": began - opened,
            "seconds_measured": time.monotonic() - began,
        }
        if not alone:
            began = time.monotonic()
            report |= _reference(engine, data, stride, reference)
            report["seconds_reference"] = time.monotonic() - began
    click.echo(json.dumps(report, indent=2) if as_json else for_people(_table(report)))
    return 0


def _reference(
    engine: Engine, data: bytes, stride: int | None, folder: Path | None
) -> dict[str, Any]:
    """The float32 score of `folder`, or of the engine's model."""
    from lora_host.errors import RequestError
    from lora_sdk.engine.evaluation import plan_text
    from lora_sdk.model.checkpoint import Checkpoint
    from lora_sdk.model.config import load_config
    from lora_sdk.model.rope import at_context
    from lora_sdk.quant.dense import DenseOperations
    from lora_sdk.quant.reference import float_bits

    path, expected = folder or engine.model_path, engine.config
    rotary = expected.rope.context or None if expected.rope else None
    checkpoint = Checkpoint.open(path, at_context(load_config(path), rotary))
    found = checkpoint.config
    if (found.vocabulary, found.positions) != (expected.vocabulary, expected.positions):
        raise RequestError(
            f"{folder}: vocabulary {found.vocabulary}, {found.positions} positions, expected"
            f" {expected.vocabulary} and {expected.positions}; name the original model"
        )
    plan = plan_text(engine, data, stride)
    with ProgressBar("float32", unit="token") as progress:
        operations = DenseOperations(checkpoint, rounded=False)
        bits = plan.bits + float_bits(operations, plan.tokens, plan.windows, progress)
    return {"reference": str(checkpoint.folder), "reference_bits_per_byte": bits / plan.bytes}


def _seconds(report: dict[str, Any]) -> str:
    """What the time was spent on."""
    parts = {
        "loading": report["seconds_loading"],
        f"scoring on {counted(report['boards'], 'board')}": report["seconds_measured"],
    }
    if "seconds_reference" in report:
        parts["the float32 reference on this computer"] = report["seconds_reference"]
    listed = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in parts.items())
    return f"{sum(parts.values()):.2f} s: {listed}"


def _table(report: dict[str, Any]) -> str:
    first = {
        "bos": "predicted from the tokenizer's BOS token",
        "uniform": "counted as uniform over the vocabulary: the tokenizer has no BOS token",
    }[report["first_token"]]
    reference = []
    if "reference" in report:
        other = report["reference_bits_per_byte"]
        off = report["bits_per_byte"] / other - 1
        reference = [
            f"float32        {other:.4f} of {report['reference']}: {off:+.2%} relative to it"
        ]
    return "\n".join(
        [
            f"bits per byte  {report['bits_per_byte']:.4f}",
            *reference,
            f"perplexity     {report['perplexity']:.3f} per token",
            f"text           {report['bytes']} bytes, {report['tokens']} tokens",
            f"first token    {first}",
            f"windows        {report['windows']} of {report['context']} positions, stride "
            f"{report['stride']}",
            f"measured       {_seconds(report)}",
        ]
    )
