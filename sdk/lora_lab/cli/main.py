"""`lora lab`: commands of the laboratory."""

from __future__ import annotations

import click

from lora_sdk.cli.lazy_group import Entry, LazyGroup

COMMANDS = {
    "bench": Entry(
        "lora_lab.cli.bench:bench", "measure decoding, prefill, loading and this machine's memory"
    ),
    "dse": Entry("lora_lab.cli.dse:dse", "search the design with the lowest modelled latency"),
    "model": Entry(
        "lora_lab.cli.model:model", "modelled time of a design: a token, a request, a fleet"
    ),
    "plot": Entry("lora_lab.cli.plot:plot", "draw times, scaling, the roofline or speculation"),
    "spec": Entry(
        "lora_lab.cli.spec:spec", "trees and verification lengths of speculative decoding"
    ),
    "synth": Entry("lora_lab.cli.synth:synth", "write a model folder with random weights"),
    "torture": Entry(
        "lora_lab.cli.torture:torture", "inject faults at seeded moments and judge every end"
    ),
}


@click.group("lab", cls=LazyGroup, entries=COMMANDS)
def lab() -> None:
    """Model, search, measure and torture: what helps to build the product, and to choose boards."""
