"""`lora lab plot`: modelled times as PNG or SVG."""

from __future__ import annotations

from pathlib import Path

import click

from lora_sdk.cli.output_file import OUTPUT

EXAMPLES = """\b
Examples:
  lora lab plot breakdown -o time.svg
  lora lab plot scaling --design own-v80 --boards 8 -o scaling.png
"""


@click.command("plot", epilog=EXAMPLES)
@click.argument("kind", type=click.Choice(["breakdown", "scaling", "roofline", "speculation"]))
@click.option("-o", "--output", type=OUTPUT, metavar="FILE", required=True,
              help="file to write: .png or .svg")  # fmt: skip
@click.option("--design", "designs", multiple=True, help="may be repeated; default: own-u280")
@click.option("-m", "--model", "model", default="llama2-7b", show_default=True,
              help="a shape by name, a model folder or its config.json")  # fmt: skip
@click.option("--boards", type=int, help="number of boards; scaling: the most [1; scaling: 8]")
@click.option("-c", "--context", default=128, show_default=True, help="context of a token")
def plot(
    kind: str, output: Path, designs: tuple[str, ...], model: str, boards: int | None, context: int
) -> None:
    """Plot the breakdown of a token's time, scaling, the roofline, or tree speculation."""
    from lora_lab.timing.plots import draw

    if boards is None:
        boards = 8 if kind == "scaling" else 1
    draw(kind, output, designs or ("own-u280",), model, boards, context)
    click.echo(f"wrote {output}", err=True)
