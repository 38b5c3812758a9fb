"""A group of commands that are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from lora_sdk.optional import required_module


class Entry(NamedTuple):
    """A command, which is imported on first use, and what `--help` of its group says of it."""

    location: str
    summary: str


class WholeGroup(click.Group):
    """A group whose --help has the first paragraph of each command's text, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, " ".join((command.help or "").partition("\n\n")[0].split()))
                    for name, command in found
                    if command is not None
                ]
            )


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.entries:
            return None
        module, attribute = self.entries[cmd_name].location.split(":")
        command = getattr(required_module(module, f"{ctx.command_path} {cmd_name}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of --help, without an import of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, entry.summary) for name, entry in sorted(self.entries.items())]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.entries:
            raise click.UsageError(f"no command {args[0]!r}; {self.hint(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def hint(self, name: str) -> str:
        """What to do about a command that there is not."""
        from lora_host.naming import did_you_mean

        return did_you_mean(name, sorted(self.entries))
