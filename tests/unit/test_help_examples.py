"""The help of each command has an example that names it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from lora_sdk.cli.main import lora


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in _leaves(lora, "lora")]
)
def test_help_has_an_example(path: str, command: click.Command) -> None:
    help_text = command.get_help(click.Context(command, info_name=path))
    lines = [line.strip() for line in help_text.splitlines()[1:]]  # the first is the usage
    assert any(line == path or line.startswith(f"{path} ") for line in lines)
