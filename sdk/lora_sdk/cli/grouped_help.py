"""A command whose help lists its options in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


def name_of(parameter: click.Parameter) -> str | None:
    """As groups have it: click gives its own name to --help."""
    return "help" if "--help" in parameter.opts else parameter.name


class GroupedCommand(click.Command):
    """`groups`: names of parameters by title, in the order of the help."""

    def __init__(self, *args: Any, groups: Mapping[str, tuple[str, ...]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups; options of none come last."""
        options = (p for p in self.get_params(ctx) if isinstance(p, click.Option))
        shown = ((option, option.get_help_record(ctx)) for option in options)
        records = {name_of(option): record for option, record in shown if record}
        for title, names in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names if name in records])
        if records:
            with formatter.section("Others"):
                formatter.write_dl(list(records.values()))
