"""`lora fleet`: prompts on several engines, some of which compute prompts for the others."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from lora_sdk.cli.adapters import adapter_flags, default_adapter, load_adapters, take_adapters
from lora_sdk.cli.batch import Batch
from lora_sdk.cli.flags import flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.outcome import say
from lora_sdk.cli.prompts import name_of, read_batch
from lora_sdk.cli.run_command import SAMPLING_FLAGS, TO_THE_END, to_the_end
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_cluster.dispatch.fleet import Fleet
    from lora_sdk.step.results import Result

EXAMPLES = """\b
Examples:
  lora fleet examples/fleet_demo.yaml examples/prompts.jsonl > results.jsonl
  lora fleet examples/fleet_demo.yaml prompts.jsonl -n 100 --temp 0.8

A line of PROMPTS is one of lora-run --batch. Every result is one JSON line on
stdout, in the order of the lines, and a text on a terminal without --json; a
table of what ran where goes to stderr. Exit code: 0 done, 1 a line failed,
2 refused."""


class Figures:
    """Counts and times of the results. See Counts."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._began = time.monotonic()

    def add(self, result: Result) -> None:
        """A request is finished."""
        self._results.append(result)

    def described(self, result: Result) -> dict[str, Any]:
        """A result for JSON."""
        return result.as_dict()

    def lines(self, fleet: Fleet) -> list[str]:
        """A table of the places, and totals."""
        rows = [f"{'place':<12}{'boards':>8}{'begun':>8}{'taken':>8}{'ended':>8}{'tokens':>8}"]
        for place in fleet.places:
            engine = place.engine
            notes = "  fast: texts may differ from the boards' own" if place.fast else ""
            if place.failure is not None:
                notes += f"  failed: {place.failure}"
            rows.append(
                f"{place.name:<12}{engine.plan.size:>8}{place.begun:>8}{place.taken:>8}"
                f"{place.ended:>8}{engine.new_tokens:>8}{notes}"
            )
        seconds = time.monotonic() - self._began
        tokens = sum(result.completion_tokens for result in self._results)
        first = median([result.timing.first_token for result in self._results] or [0.0])
        use = fleet.use
        rows.append(
            f"measured: {use.ended} requests, {tokens} new tokens in {seconds:.2f} s "
            f"({tokens / max(seconds, 1e-9):.1f} tokens/s), first token after {first:.3f} s in the "
            f"median; {use.moved} moved from a worker to a cluster, {use.by_workers} ended on a "
            f"worker, {use.rescued} went on elsewhere after a failure"
        )
        return rows


@click.command("fleet", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("prompts", metavar="PROMPTS|-")
@adapter_flags
@flags(SamplingParams, *SAMPLING_FLAGS, max_tokens=TO_THE_END)
@click.option("--json", "as_json", is_flag=True, help="JSON lines on a terminal too")
@click.option("-q", "--quiet", is_flag=True, help="no table")
def fleet_command(file: Path, prompts: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Continue prompts on a fleet.yaml: workers compute prompts, clusters new tokens.

    Without boards all engines are emulated. The tokens are those of lora-run --batch."""
    from lora_cluster.dispatch.description import read_content

    read_content(file)  # before prompts are looked at
    adapters, more = take_adapters(options)
    sampling = {**to_the_end(options), **default_adapter(adapters)}
    lines = Batch(read_batch(prompts, sampling), name_of(prompts), as_json)
    lines.refuse()
    if not lines.runnable:
        lines.check()

    from lora_cluster.dispatch.fleet import Fleet

    with Fleet.open(file, on_notice=partial(say, "lora fleet", "notice"), **more) as fleet:
        notes = load_adapters(fleet, adapters)
        if notes and not quiet:
            show("\n".join(notes), err=True)
        figures = Figures()
        lines.run(fleet, figures)
        if not quiet:
            show("\n".join(figures.lines(fleet)), err=True)
        fleet.confirm()
    lines.check()
    return 0
