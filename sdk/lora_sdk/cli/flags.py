"""Flags of the command line, generated from the described fields that they set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import click

from lora_host.errors import RequestError
from lora_sdk.arguments.option import ArgumentError, Option, options_of

LONGEST_METAVAR = 60  # columns; longer lists of choices stand in the help
Function = TypeVar("Function", bound=Callable[..., Any])

MODEL_FLAGS = (
    *("model", "boards", "stages", "devices", "cluster_file"),
    *("overlay", "kernels", "threads", "context", "kv", "gguf_weights"),
)
"""Fields of EngineOptions that select the model and the boards."""
RUN_FLAGS = (*MODEL_FLAGS, "max_sequences", "prefix_cache", "kv_offload", "kv_offload_dir",
             "recovery", "daemon_wait", "check_weights", "spares", "greedy",
             "prefill", "prefill_mode", "prefill_model")  # fmt: skip
"""Fields of EngineOptions of commands that run requests."""


def flags(owner: type, *names: str, **changes: Mapping[str, Any]) -> Callable[[Function], Function]:
    """Decorator: flags of the fields `names` of a described dataclass, in this order. `changes`:
    per field, the attributes of Option that differ for this command, and `required`."""
    known = options_of(owner)

    def add(function: Function) -> Function:
        shown: dict[str, Option] = {}
        for name in reversed(names):
            change = dict(changes.get(name, {}))
            required = bool(change.pop("required", False))
            shown[name] = replace(known[name], **change)
            function = _flag(shown[name], required)(function)
        return _naming_flags(function, shown)

    return add


def _naming_flags(function: Function, shown: Mapping[str, Option]) -> Function:
    """The function; errors on the values of `shown` name the flag instead of the argument."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ArgumentError as error:
            if error.name not in shown:
                raise
            raise _of_flag(shown[error.name], error) from None

    return cast("Function", call)


def _of_flag(option: Option, error: ArgumentError) -> RequestError:
    """The same error with the flag's names. No flag takes None."""
    return RequestError(
        f"{'/'.join(option.flags)} is {error.found!r:.60}; expected {error.expected}"
    )


def _flag(option: Option, required: bool) -> Callable[[Function], Function]:
    more: dict[str, Any] = {"required": required, "help": _help(option)}
    if option.kind == "bool" and not option.choices:
        both = "/".join(option.flags)  # with two flags the second one sets False
        return click.option(both, option.name, is_flag=True, default=option.default, **more)
    shown = option.default not in (None, (), "") and not option.unset
    return click.option(
        *option.flags,
        option.name,
        type=_parser(option),
        multiple=option.many,
        default=None if option.many else option.default,
        show_default=shown,
        shell_complete=_completer(option),
        metavar=_metavar(option),
        **more,
    )


def _parser(option: Option) -> Callable[[Any], object]:
    """Converts a flag's text, or its default, to its value, with the checks of the argument."""

    def parse(value: Any) -> object:
        try:
            return option.parse(value) if isinstance(value, str) else value
        except ArgumentError as error:
            raise _of_flag(option, error) from None

    return parse


def _completer(option: Option) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [choice for choice in _choices(option) if choice.startswith(incomplete)]

    return complete


def _metavar(option: Option) -> str:
    choices = f"[{'|'.join(_choices(option))}]" if option.choices else ""
    if len(choices) > LONGEST_METAVAR:
        choices = "NAME"
    return option.metavar or choices or {"int": "N", "float": "X"}.get(option.kind, "TEXT")


def _choices(option: Option) -> tuple[str, ...]:
    truths = ("false", "true") if option.kind == "bool" and option.choices else ()
    return (*truths, *option.choices)


def _help(option: Option) -> str:
    repeated = "; may be repeated" if option.many else ""
    if _metavar(option) == "NAME" and option.choices:
        repeated += f"; one of {', '.join(option.choices)}"
    unset = f" [{option.unset}]" if option.unset else ""
    return f"{option.help}{repeated}{unset}"
