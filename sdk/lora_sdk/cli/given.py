"""Which options of a command line were given, and not left at their defaults."""

from __future__ import annotations

import click


def was_given(invoked: click.Context, name: str | None) -> bool:
    """Whether the option `name`, as the command's function has it, is on the command line."""
    source = invoked.get_parameter_source(name) if name is not None else None
    return source is not None and source.name == "COMMANDLINE"
