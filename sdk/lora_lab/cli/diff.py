"""`lora diff`: the first operation whose values differ between two set-ups."""

from __future__ import annotations

import dataclasses
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.cli.prompts import argument_text, one_source, read_prompt

if TYPE_CHECKING:
    from lora_lab.diff.differences import Compared
    from lora_sdk.opening.options import EngineOptions

EXAMPLES = """\b
Examples:
  lora diff --boards 1,4 prompt.txt
  lora diff --kernels native,numpy,rtl -p "def main(" -n 8
  lora diff --device emu:u280,sim:u280 -p "def main("
  lora diff -m FP16,W8A8 --tolerance 0.05 prompt.txt
"""
SETUPS = {"model": "-m", "boards": "--boards", "kernels": "--kernels", "device": "--device",
          "overlay": "--overlay", "kv": "--kv"}  # fmt: skip


@click.command("diff", epilog=EXAMPLES)
@click.argument("source", metavar="PROMPT_FILE", required=False)
@click.option("-p", "--prompt", metavar="TEXT", help="the prompt itself")
@click.option("-n", "--tokens", default=16, show_default=True, type=click.IntRange(0),
              metavar="N", help="tokens behind the prompt, as the first writes them")  # fmt: skip
@click.option("-m", "--model", metavar="DIR[,DIR]",
              help="model folder or GGUF file of each set-up [the demo model]")  # fmt: skip
@click.option("--boards", metavar="N[,N]", help="boards of each set-up [1]")
@click.option("--kernels", metavar="NAME[,NAME]",
              help="kernels of emulated boards: native, numpy, rtl [native]")  # fmt: skip
@click.option("--device", metavar="URI[,URI]", help="the board of each set-up [emulated boards]")
@click.option("--overlay", metavar="DIR[,DIR]",
              help="name or folder of each set-up's overlay [one that supports it]")  # fmt: skip
@click.option("--kv", metavar="KIND[,KIND]",
              help="KV cache of each: fp16, int8, int8-heads [as the model says]")  # fmt: skip
@click.option("--tolerance", default=0.0, show_default=True, type=click.FloatRange(0),
              metavar="T", help="values may differ by T times their row's largest")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def diff(
    source: str | None,
    prompt: str | None,
    tokens: int,
    tolerance: float,
    as_json: bool,
    **given: str | None,
) -> int:
    """Run a prompt under several set-ups, and name the first step, layer, operation
    and column whose values differ from those of the first set-up.

    An option with values apart by commas makes one set-up of each; one value is of all. Exit code
    0: all values are equal; 1: a difference, or an error.
    """
    from lora_sdk.text.tokenizer import Tokenizer

    setups = _setups(given)
    chosen = one_source(prompt, source, None)
    text = argument_text("-p", prompt) if prompt is not None else read_prompt(chosen or "-")
    options = [_options(one) for one in setups]
    vocabulary = _vocabulary(options[0])
    prompt_ids = Tokenizer(options[0].folder, vocabulary).encode(text)
    reports, differ = [], False
    for name, one in list(zip(_names(setups), options, strict=True))[1:]:
        found = _compared(options[0], one, prompt_ids, tokens, tolerance)
        differ |= found.difference is not None
        reports.append({"setup": name, **dataclasses.asdict(found)})
        if not as_json:
            click.echo(for_people(_lines(_names(setups)[0], name, found)))
    if as_json:
        click.echo(json.dumps({"reference": _names(setups)[0], "compared": reports}, indent=2))
    return int(differ)


def _setups(given: dict[str, str | None]) -> list[dict[str, str]]:
    """One dictionary of options each."""
    lists = {name: value.split(",") for name, value in given.items() if value is not None}
    count = max(map(len, lists.values()), default=1)
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise RequestError(
                f"{SETUPS[name]} has {len(values)} values; expected 1 or {count}, one a set-up"
            )
    if count < 2:
        raise RequestError("one set-up; expected two or more, for instance --boards 1,4")
    return [
        {name: values[index if len(values) > 1 else 0] for name, values in lists.items()}
        for index in range(count)
    ]


def _names(setups: list[dict[str, str]]) -> list[str]:
    """What tells them apart."""
    apart = [name for name in setups[0] if len({one[name] for one in setups}) > 1]
    return [
        ", ".join(f"{SETUPS[name]} {one[name]}" for name in apart) or "the same" for one in setups
    ]


def _options(setup: dict[str, str]) -> EngineOptions:
    from lora_sdk.opening.options import EngineOptions

    given: dict[str, Any] = {"max_sequences": 1, "kernels": setup.get("kernels", "native")}
    if "boards" in setup:
        if not setup["boards"].isdecimal():
            raise RequestError(f"--boards: {setup['boards']!r} is no number")
        given["boards"] = int(setup["boards"])
    if "device" in setup:
        given["devices"] = [setup["device"]]
    for name in ("model", "overlay", "kv"):
        if name in setup:
            given[name] = setup[name]
    return EngineOptions(**given)


def _vocabulary(options: EngineOptions) -> int:
    from lora_sdk.model.config import load_config

    return load_config(options.folder).vocabulary


def _compared(
    expected: EngineOptions, found: EngineOptions, prompt: list[int], tokens: int, tolerance: float
) -> Compared:
    from lora_lab.diff.differences import compare
    from lora_lab.diff.outputs import Outputs
    from lora_sdk.opening.opening import open_model

    with ExitStack() as stack:
        both = []
        for options in (expected, found):
            opened = open_model(options)
            stack.enter_context(opened.stack)
            both.append(Outputs(opened))
        with ProgressBar("comparing", unit="token") as progress:
            return compare(both[0], both[1], prompt, tokens, tolerance, progress)


def _lines(reference: str, name: str, found: Compared) -> str:
    run = f"{counted(found.tokens, 'token')} in {counted(found.steps, 'step')}"
    first = found.difference
    if first is None:
        return f"equal: {reference} and {name}: {run}"
    where = "outside the layers" if first.layer is None else f"layer {first.layer}"
    return (
        f"differs: {reference} and {name}, after {run}\n"
        f"  step {first.step}, row {first.row} (position {first.position})\n"
        f"  {where}, {first.operation}, column {first.column} of {first.axis}\n"
        f"  {first.expected:.9g} ({first.expected_bits}) with {reference}\n"
        f"  {first.found:.9g} ({first.found_bits}) with {name}\n"
        f"  {first.count} of the operation's {first.total} values differ in this step"
    )
