"""How the options of `lora serve` are read: flags that take several values, a file of options, and
variables of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_host.yaml_file import read_yaml
from lora_sdk.cli.grouped_help import GroupedCommand

SEVERAL = ("--served-model-name", "--lora-modules", "--api-key", "--allowed-origins")
"""Flags of vLLM that take all values up to the next flag."""
ENVIRONMENT = "LORA"


class ServeCommand(GroupedCommand):
    """A command with `SEVERAL`, `--config` and variables `LORA_<OPTION>`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param, click.Option) and param.name != "config" and not param.envvar:
                longest = max(param.opts, key=len)
                names = [longest, *(name for name in param.opts if name != longest)]
                param.envvar = [_variable(name) for name in names if name.startswith("--")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click.Command."""
        return super().parse_args(ctx, spread(args))


def _variable(flag: str) -> str:
    return f"{ENVIRONMENT}_{flag.lstrip('-').replace('-', '_').upper()}"


def spread(args: list[str]) -> list[str]:
    """The arguments with one value behind each flag of `SEVERAL`."""
    found: list[str] = []
    flag, first = None, False
    for arg in args:
        if arg.startswith("-"):
            flag, first = (arg if arg in SEVERAL else None), True
        elif flag is not None and not first:
            found.append(flag)
        else:
            first = False
        found.append(arg)
    return found


def read_config(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """Callback of `--config`: a YAML file whose names are those of flags, without dashes in front;
    what the command line or the environment says goes before."""
    if path is None:
        return
    given = read_yaml(Path(path), RequestError)
    if not isinstance(given, dict):
        raise RequestError(f"{path}: expected a mapping of options, such as 'port: 8001'")
    known = {
        name.lstrip("-").replace("_", "-"): param
        for param in ctx.command.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--") and param.name not in ("config", "help")
    }
    found: dict[str, Any] = {}
    for name, value in given.items():
        param = known.get(name.replace("_", "-"))
        if param is None:
            hint = did_you_mean(name.replace("_", "-"), sorted(known))
            raise RequestError(f"{path}: no option {name!r:.60}; {hint}")
        assert param.name is not None
        found[param.name] = _value(path, name, param, value)
    ctx.default_map = found


def _value(path: str, name: str, param: click.Option, value: Any) -> Any:
    """As click takes it from a map of defaults."""
    if param.is_flag:
        if not isinstance(value, bool):
            raise RequestError(f"{path}: {name} is {value!r:.60}; expected true or false")
        negated = f"--{name.replace('_', '-')}" in param.secondary_opts
        return not value if negated else value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in values):
        raise RequestError(f"{path}: {name} is {value!r:.60}; expected a text or a number")
    if param.multiple:
        return [str(one) for one in values]
    if isinstance(value, list):
        raise RequestError(f"{path}: {name} has {len(value)} values; expected one")
    return str(value)
