"""`lora eval`: how well a model predicts a text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from lora_sdk.cli.flags import engine_options
from lora_sdk.cli.progress import ProgressBar


@click.command("eval")
@click.option("--text", "path", required=True, metavar="FILE", help="UTF-8 text to score")
@click.option(
    "--stride",
    type=int,
    metavar="N",
    help="tokens that count in each window but the first [half the context]",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@engine_options
def evaluate(path: str, stride: int | None, as_json: bool, **engine_arguments: Any) -> int:
    """Print bits per byte and perplexity of a text, every byte of it counted.

    The text is run in windows of the context's length. In the first all tokens count, in the
    others the last --stride ones, with the tokens before them as context. The first token is
    predicted from the tokenizer's beginning-of-text token; where it has none, it counts as one of
    the vocabulary's tokens, all equally likely.
    """
    from lora_host.errors import RequestError
    from lora_sdk.engine import Engine
    from lora_sdk.evaluation import evaluate_text

    file = Path(path)
    if not file.is_file():
        raise RequestError(f"text file {path} is not there; expected UTF-8 text")
    data = file.read_bytes()
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
            "seconds_measured": time.monotonic() - began,
        }
    click.echo(json.dumps(report, indent=2) if as_json else _table(report))
    return 0


def _table(report: dict[str, Any]) -> str:
    first = {
        "bos": "predicted from the tokenizer's beginning of text",
        "uniform": "counted as uniform over the vocabulary: the tokenizer has no beginning of text",
    }[report["first_token"]]
    return "\n".join(
        [
            f"bits per byte  {report['bits_per_byte']:.4f}",
            f"perplexity     {report['perplexity']:.3f} a token",
            f"text           {report['bytes']} bytes, {report['tokens']} tokens",
            f"first token    {first}",
            f"windows        {report['windows']} of {report['context']} positions, stride "
            f"{report['stride']}",
            f"measured       {report['seconds_measured']:.2f} s on {report['boards']} board(s)",
        ]
    )
