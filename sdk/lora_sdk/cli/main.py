"""`lora`: all commands except `lora-run`."""

from __future__ import annotations

import importlib
import sys

import click

from lora_sdk import __version__
from lora_sdk.cli.outcome import run_command

COMMANDS = {
    "bench": "lora_sdk.cli.bench:bench",
    "chat": "lora_sdk.cli.chat:chat",
    "doctor": "lora_sdk.cli.doctor:doctor",
    "dse": "lora_sdk.cli.dse:dse",
    "eval": "lora_sdk.cli.eval:evaluate",
    "inspect": "lora_sdk.cli.inspect:inspect",
    "links": "lora_sdk.cli.links:links",
    "list": "lora_sdk.cli.list:list_boards",
    "load": "lora_sdk.cli.load:load_command",
    "model": "lora_sdk.cli.model:model",
    "overlay": "lora_sdk.cli.overlay:overlay",
    "plan": "lora_sdk.cli.plan:plan",
    "plot": "lora_sdk.cli.plot:plot",
    "program": "lora_sdk.cli.program:program",
    "quantize": "lora_sdk.cli.quantize:quantize",
    "reset": "lora_sdk.cli.reset:reset",
    "serve": "lora_sdk.cli.serve:serve",
    "spec": "lora_sdk.cli.spec:spec",
    "synth": "lora_sdk.cli.synth:synth",
    "top": "lora_sdk.cli.top:top",
    "validate": "lora_sdk.cli.validate:validate",
}
"""Name of a command -> its location. It is imported on first use."""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from lora_host.naming import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], sorted(COMMANDS))
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To generate text, use lora-run; see lora-run --help.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def lora() -> None:
    """Plan and measure models on clusters of FPGA boards. Without boards they are emulated."""


def main() -> None:
    """Entry point of `lora`."""
    sys.exit(run_command(lora, "lora"))
