"""`lora`: all commands except `lora-run`."""

from __future__ import annotations

import sys

import click

from lora_sdk import __version__
from lora_sdk.cli.lazy_group import Entry, LazyGroup
from lora_sdk.cli.outcome import run_command
from lora_sdk.optional import optional_module

COMMANDS = {
    "batch": Entry(
        "lora_sdk.cli.batch_command:batch", "a file of prompts into a file of results; resumable"
    ),
    "boardd": Entry(
        "lora_sdk.cli.boardd:boardd", "serve this host's boards to other hosts and processes"
    ),
    "chat": Entry("lora_sdk.cli.chat:chat", "talk to a model that has a chat template"),
    "diff": Entry(
        "lora_lab.cli.diff:diff", "the first operation whose values differ between two set-ups"
    ),
    "doctor": Entry(
        "lora_sdk.cli.doctor:doctor", "check drivers, runtimes, rights, device nodes and limits"
    ),
    "eval": Entry("lora_sdk.cli.eval:evaluate", "bits per byte and perplexity of a text"),
    "fleet": Entry(
        "lora_cluster.cli.fleet:fleet_command", "prompts on workers, their new tokens on clusters"
    ),
    "inspect": Entry(
        "lora_sdk.cli.inspect:inspect",
        "kernels and banks of a container, or what a model consists of",
    ),
    "lab": Entry("lora_lab.cli.main:lab", "modelled time, designs, benchmarks, fault campaigns"),
    "links": Entry("lora_sdk.cli.links:links", "the links' registers"),
    "list": Entry(
        "lora_sdk.cli.list:list_boards", "the boards of this computer; --watch: sensors and holders"
    ),
    "load": Entry("lora_sdk.cli.load:load_command", "measure a running server under load"),
    "overlay": Entry("lora_sdk.cli.overlay:overlay", "generate files from an overlay's manifest"),
    "plan": Entry(
        "lora_sdk.cli.plan:plan", "the placement of a model in the boards' banks: does it fit?"
    ),
    "program": Entry(
        "lora_sdk.cli.program:program", "load an overlay on boards and check that it runs there"
    ),
    "quantize": Entry(
        "lora_sdk.cli.quantize:quantize", "write a model with weights of 8 or 4 bits"
    ),
    "ray": Entry(
        "lora_cluster.cli.ray_nodes:ray_group", "nodes of a Ray cluster, for replicas of lora serve"
    ),
    "reset": Entry("lora_sdk.cli.reset:reset", "reset boards, load the overlay and check them"),
    "serve": Entry("lora_sdk.cli.serve:serve", "serve a model through OpenAI's HTTP protocol"),
    "top": Entry(
        "lora_sdk.cli.top:top", "boards, rows, queue and tokens a second of a running server"
    ),
    "validate": Entry(
        "lora_sdk.cli.validate:validate", "test each bank, every cable, each unit, and all together"
    ),
}


class Lora(LazyGroup):
    """`lora`, which knows where the laboratory's commands are."""

    def hint(self, name: str) -> str:
        """See LazyGroup."""
        if name == "run":
            return "it is lora-run"
        laboratory = optional_module("lora_lab.cli.main")
        if laboratory is not None and name in laboratory.COMMANDS:
            return f"it is lora lab {name}"
        return super().hint(name)


@click.group(
    cls=Lora,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To generate text, use lora-run; see lora-run --help.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def lora() -> None:
    """Run models on clusters of FPGA boards. Without boards they are emulated."""


def main() -> None:
    """Entry point of `lora`."""
    sys.exit(run_command(lora, "lora"))
