"""Options of other servers that mean the same as some of `lora serve`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from lora_host.errors import RequestError

Function = TypeVar("Function", bound=Callable[..., Any])

NAMES: Mapping[str, Mapping[str, Any]] = {
    "context": {"flags": ("-c", "--ctx-size", "--context", "--max-model-len")},
    "max_sequences": {"flags": ("--max-sequences", "--sequences", "--max-num-seqs")},
    "kv": {"flags": ("--kv", "--kv-cache-dtype")},
}
"""Further names of options, by field."""


def alias_flags(function: Function) -> Function:
    """Those that are not merely further names."""
    for decorate in (
        click.argument("model_argument", required=False, metavar="[MODEL]"),
        click.option(
            "-tp", "--tensor-parallel-size", "tensor_parallel", type=click.IntRange(1),
            metavar="N", help="boards of a stage, as vLLM has it: --boards is this times --stages",
        ),
        click.option(
            "-pp", "--pipeline-parallel-size", "pipeline_parallel", type=click.IntRange(1),
            metavar="S", help="the same as --stages, as vLLM has it",
        ),
        click.option(
            "--dtype", type=click.Choice(["auto", "half", "float16"]), default="auto",
            help="arithmetic is float16 always, whatever the model's files have",
        ),
        click.option(
            "--enable-lora", is_flag=True,
            help="no effect: --adapter and --adapter-root are enough",
        ),
    ):  # fmt: skip
        function = decorate(function)
    return function


def take_aliases(options: dict[str, Any]) -> None:
    """Put their values where ours are. RequestError where both are given."""
    model = options.pop("model_argument")
    if model is not None:
        _only(options["model"] is None, "a model is named twice; give MODEL or --model")
        options["model"] = model
    options["allowed_origins"] = [
        one for text in options["allowed_origins"] for one in _listed(text)
    ]
    options["adapters"] = [_adapter(text) for text in options["adapters"]]
    del options["dtype"], options["enable_lora"]
    width, stages = options.pop("tensor_parallel"), options.pop("pipeline_parallel")
    if stages is not None:
        _only(options["stages"] in (1, stages), "--stages and --pipeline-parallel-size differ")
        options["stages"] = stages
    if width is None:
        options["boards"] = options["boards"] or stages
        return
    boards = width * options["stages"]
    _only(
        options["boards"] in (None, boards),
        f"--boards is {options['boards']}; expected {boards}, by --tensor-parallel-size and stages",
    )
    options["boards"] = boards


def _listed(text: str) -> list[str]:
    """A value, or several as a JSON list."""
    if not text.startswith("["):
        return [text]
    value = _json(text)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise RequestError(f"{text!r:.100} is no list of texts")
    return value


def _adapter(text: str) -> str:
    """NAME=PATH; vLLM has an object, too."""
    if not text.startswith("{"):
        return text
    value = _json(text)
    name, path = (value.get(key) for key in ("name", "path"))
    if not (isinstance(name, str) and isinstance(path, str)):
        raise RequestError(f"--lora-modules {text!r:.100}; expected a name and a path")
    return f"{name}={path}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RequestError(f"{text!r:.100} is not JSON") from None


def _only(holds: bool, message: str) -> None:
    if not holds:
        raise RequestError(message)
