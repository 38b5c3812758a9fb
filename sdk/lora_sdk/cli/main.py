"""`lora`: all commands except `lora-run`."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

import click

from lora_sdk import __version__
from lora_sdk.cli.outcome import run_command


class Entry(NamedTuple):
    """A command, which is imported on first use, and what `lora --help` says of it."""

    location: str
    summary: str


COMMANDS = {
    "batch": Entry(
        "lora_sdk.cli.batch_command:batch", "a file of prompts into a file of results; resumable"
    ),
    "bench": Entry(
        "lora_sdk.cli.bench:bench", "measure decoding, prefill, loading and this machine's memory"
    ),
    "boardd": Entry(
        "lora_sdk.cli.boardd:boardd", "serve this host's boards to other hosts and processes"
    ),
    "chat": Entry("lora_sdk.cli.chat:chat", "talk to a model that has a chat template"),
    "doctor": Entry(
        "lora_sdk.cli.doctor:doctor", "check drivers, runtimes, rights, device nodes and limits"
    ),
    "dse": Entry("lora_sdk.cli.dse:dse", "search the design with the lowest modelled latency"),
    "eval": Entry("lora_sdk.cli.eval:evaluate", "bits per byte and perplexity of a text"),
    "fleet": Entry(
        "lora_sdk.cli.fleet:fleet_command", "prompts on workers, their new tokens on clusters"
    ),
    "inspect": Entry(
        "lora_sdk.cli.inspect:inspect",
        "kernels and banks of a container, or tensors of a GGUF model",
    ),
    "links": Entry("lora_sdk.cli.links:links", "the links' registers"),
    "list": Entry(
        "lora_sdk.cli.list:list_boards", "the boards of this computer; --watch: sensors and holders"
    ),
    "load": Entry("lora_sdk.cli.load:load_command", "measure a running server under load"),
    "model": Entry(
        "lora_sdk.cli.model:model", "modelled time of a design: a token, a request, a fleet"
    ),
    "overlay": Entry("lora_sdk.cli.overlay:overlay", "generate files from an overlay's manifest"),
    "plan": Entry(
        "lora_sdk.cli.plan:plan", "the placement of a model in the boards' banks: does it fit?"
    ),
    "plot": Entry("lora_sdk.cli.plot:plot", "draw times, scaling, the roofline or speculation"),
    "program": Entry(
        "lora_sdk.cli.program:program", "load an overlay on boards and check that it runs there"
    ),
    "quantize": Entry(
        "lora_sdk.cli.quantize:quantize", "write a model with weights of 8 or 4 bits"
    ),
    "ray": Entry(
        "lora_sdk.cli.ray_nodes:ray_group", "nodes of a Ray cluster, for replicas of lora serve"
    ),
    "reset": Entry("lora_sdk.cli.reset:reset", "reset boards, load the overlay and check them"),
    "serve": Entry("lora_sdk.cli.serve:serve", "serve a model through OpenAI's HTTP protocol"),
    "spec": Entry(
        "lora_sdk.cli.spec:spec", "trees and verification lengths of speculative decoding"
    ),
    "synth": Entry("lora_sdk.cli.synth:synth", "write a model folder with random weights"),
    "top": Entry(
        "lora_sdk.cli.top:top", "boards, rows, queue and tokens a second of a running server"
    ),
    "torture": Entry(
        "lora_sdk.cli.torture:torture", "inject faults at seeded moments and judge every end"
    ),
    "validate": Entry(
        "lora_sdk.cli.validate:validate", "test each bank, every cable, each unit, and all together"
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].location.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of --help, without an import of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in sorted(COMMANDS.items())])

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
