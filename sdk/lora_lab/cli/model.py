"""`lora lab model`: modelled time of a design on boards. Nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.folding import for_people, show
from lora_sdk.cli.given import was_given
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar

if TYPE_CHECKING:
    from lora_lab.timing.adapter_ops import AdapterUse
    from lora_lab.timing.cluster import Hosts
    from lora_lab.timing.report import Report


EXAMPLES = """\b
Examples:
  lora lab model --list
  lora lab model --design source-u280 --model llama2-7b --context 128
  lora lab model --design lora-f --model gpt2-345m --boards 2 --context 128
  lora lab model --design own-u280 --model llama2-7b --in 32 --out 256
  lora lab model --design own-u280 --model llama2-7b --beams 4
  lora lab model --design own-u280 --model llama2-70b --boards 64 --stages 4
  lora lab model --design own-u280 --model llama2-7b --boards 8 --hosts 4
  lora lab model --fleet examples/fleet.yaml
  lora lab model --validate
  lora lab model --resources --design own-u280
"""


USUAL_CONTEXT = 128  # as lora lab plot has
VIEWS = {
    "listing": ("as_json",),
    "validate": ("status", "as_json"),
    "analyses": ("as_json",),
    "cells": ("design", "as_json"),
    "fleet": ("as_json",),
}
"""Options that choose what is printed in place of one design's times, and what goes with them."""


@click.command("model", epilog=EXAMPLES)
@click.option("--design", help="lora-f, lora-q, dfx, flightllm, own-u280, ... or an overlay")
@click.option("--board", help="u280, u55c, v80, vhk158 or u250; default: the design's first")
@click.option("-m", "--model", "model", help="a shape by name, a model folder or its config.json")
@click.option("--boards", default=1, show_default=True,
              help="number of boards; with --hosts: of each host")  # fmt: skip
@click.option("--stages", type=int, metavar="S",
              help="stages of layers, run by boards/S boards each [1]")  # fmt: skip
@click.option("--cross-links", is_flag=True,
              help="stages that are rings, and cables between them")  # fmt: skip
@click.option("--hosts", type=int, metavar="N",
              help="compare replicas and tensor parallelism on N hosts")  # fmt: skip
@click.option("--requests", type=int, metavar="N",
              help="with --hosts: requests at once [as many as fit]")  # fmt: skip
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="with --hosts: YAML with prices in place of the assumed ones")  # fmt: skip
@click.option("--plot", type=OUTPUT, metavar="FILE",
              help="with --hosts: draw the splits, .png or .svg")  # fmt: skip
@click.option("-c", "--context", type=int,
              help=f"time of one token at this context [{USUAL_CONTEXT}, without --in and --out]"
              )  # fmt: skip
@click.option("--in", "inputs", type=int, help="with --out: prompt length of a whole request")
@click.option("--out", "outputs", type=int, help="with --in: new tokens of a whole request")
@click.option("--mode", type=click.Choice(["ar", "sd"]), default="ar", show_default=True,
              help="plain decoding or tree speculation")  # fmt: skip
@click.option("--verify-length", type=int, help="rows per verification; default: the best")
@click.option("--beams", type=int, metavar="N",
              help="latency of a beam search by prompt [--in 32 to 4096, --out 32]")  # fmt: skip
@click.option("--adapter-rank", type=int, default=0, metavar="R",
              help="rank of the adapter of every row; 0: none")  # fmt: skip
@click.option("--adapter-mode", type=click.Choice(["bd", "s", "nfs"]),
              help="how the adapter is sharded over the boards [bd]")  # fmt: skip
@click.option("--trace", "trace", type=OUTPUT, metavar="FILE",
              help="write one step's Perfetto trace (with --context)")  # fmt: skip
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FILE",
              help="simulate GPUs that prefill and boards that decode")  # fmt: skip
@click.option("--validate", is_flag=True, help="compare with every published number")
@click.option("--status", metavar="NAME",
              help="with --validate: rows of one status, as inconsistent")  # fmt: skip
@click.option("--resources", "cells", is_flag=True,
              help="cells of designs by counts of the hardware source [--design: all]")  # fmt: skip
@click.option("--analyses", is_flag=True, help="print LORA's synchronization analyses (VI.C)")
@click.option("--list", "listing", is_flag=True, help="list designs, boards and model shapes")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.pass_context
def model(
    invoked: click.Context,
    design: str | None,
    board: str | None,
    model: str | None,
    boards: int,
    stages: int | None,
    cross_links: bool,
    hosts: int | None,
    requests: int | None,
    prices: Path | None,
    plot: Path | None,
    context: int | None,
    inputs: int | None,
    outputs: int | None,
    mode: str,
    verify_length: int | None,
    beams: int | None,
    adapter_rank: int,
    adapter_mode: str | None,
    trace: Path | None,
    fleet: Path | None,
    validate: bool,
    status: str | None,
    cells: bool,
    analyses: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Modelled time of a design on boards: one token at --context, or a request of --in and --out
    tokens; with --fleet of many requests on GPUs and boards.

    Every number is modelled. Nothing is loaded or run."""
    _check_view(invoked)
    if listing:
        _list(as_json)
        return
    if validate:
        _validate(status, as_json)
        return
    if status is not None:
        raise RequestError("--status needs --validate")
    if analyses:
        _analyses(as_json)
        return
    if cells:
        _resources(design, as_json)
        return
    if fleet is not None:
        _fleet(fleet, as_json)
        return
    if design is None or model is None:
        raise RequestError("--design and --model are needed; lora lab model --list names them")
    if context is None and inputs is None and outputs is None and beams is None:
        context = USUAL_CONTEXT
    if hosts is not None:
        others = (inputs, outputs, verify_length, beams, adapter_mode, trace, stages)
        if context is None or mode != "ar" or adapter_rank or any(o is not None for o in others):
            raise RequestError(
                "--hosts goes with --context, and with --requests, --cross-links, --prices and "
                "--plot alone"
            )
        machines = _machines(design, board, (hosts, boards), cross_links, prices)
        _hosts(machines, model, (context, requests), plot, as_json)
        return
    if requests is not None or plot is not None or prices is not None:
        raise RequestError("--requests, --prices and --plot need --hosts")
    links = (1 if stages is None else stages, cross_links)
    used = _adapter(adapter_rank, adapter_mode)
    if beams is not None:
        if context is not None or mode != "ar" or trace is not None or verify_length is not None:
            raise RequestError("--beams goes with --in and --out alone")
        if stages is not None or cross_links:
            raise RequestError("--beams is timed without --stages")
        _beams(design, board, model, boards, beams, inputs, outputs, used, as_json)
        return
    report = answer(
        design, board, model, boards, context, inputs, outputs, mode, verify_length, used, links
    )
    if trace is not None:
        _trace(trace, design, board, model, boards, context, mode, verify_length, used, links)
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else for_people(text(report)))


def _check_view(invoked: click.Context) -> None:
    """RequestError: an option that does not go with one of VIEWS."""
    given = [one for one in invoked.command.params if was_given(invoked, one.name)]
    for view in given:
        for other in given:
            if view.name in VIEWS and other is not view and other.name not in VIEWS[view.name]:
                raise RequestError(f"{other.opts[-1]} does not go with {view.opts[-1]}")


def answer(
    design: str,
    board: str | None,
    model: str,
    boards: int,
    context: int | None,
    inputs: int | None,
    outputs: int | None,
    mode: str,
    verify_length: int | None,
    adapter: AdapterUse | None = None,
    links: tuple[int, bool] = (1, False),
) -> Report:
    """The requested report. `links`: stages and cross-links. RequestError: options that
    conflict."""
    from lora_lab.timing.model import MAX_LENGTH, check_positions, run_time, token_time
    from lora_lab.timing.target import make_target
    from lora_sdk.model.shapes import find_config

    if verify_length is not None and mode != "sd":
        raise RequestError("--verify-length needs --mode sd")
    if verify_length is not None and not 1 <= verify_length <= 4 * MAX_LENGTH:
        raise RequestError(f"--verify-length {verify_length}: expected 1 to {4 * MAX_LENGTH}")
    config = find_config(model)
    check_positions(config, context or (inputs or 0) + (outputs or 0))
    target = make_target(design, board, config, boards, adapter, *links)
    if inputs is not None and outputs is not None and context is None:
        return run_time(target, model, inputs, outputs, mode, verify_length)
    if context is not None and inputs is None and outputs is None:
        return token_time(target, model, context, mode, verify_length)
    raise RequestError("give either --context, or both --in and --out")


def _beams(
    design: str,
    board: str | None,
    model: str,
    boards: int,
    beams: int,
    inputs: int | None,
    outputs: int | None,
    adapter: AdapterUse | None,
    as_json: bool,
) -> None:
    """The table of a beam search's latencies."""
    from lora_lab.timing.beam_latency import PROMPTS, RESPONSE, beam_latency, beam_latency_lines
    from lora_lab.timing.model import check_positions
    from lora_lab.timing.target import make_target
    from lora_sdk.model.shapes import find_config

    config = find_config(model)
    response = RESPONSE if outputs is None else outputs
    if inputs is not None:
        check_positions(config, inputs + response)
    prompts = PROMPTS if inputs is None else (inputs,)
    target = make_target(design, board, config, boards, adapter)
    found = beam_latency(target, config, beams, prompts, response)
    if max(prompts) + response > config.positions:
        found["notes"].append(
            f"lengths as in the paper's figure; the model has {config.positions} positions"
        )
    lines = beam_latency_lines(found, model)
    click.echo(
        json.dumps({**found, "model": model}, indent=2) if as_json else for_people("\n".join(lines))
    )


def _machines(
    design: str,
    board: str | None,
    machines: tuple[int, int],
    cross_links: bool,
    paid: Path | None,
) -> Hosts:
    """A cluster of (hosts, boards of each)."""
    from lora_lab.timing.cluster import Hosts
    from lora_lab.timing.prices import prices

    return Hosts(design, board, *machines, prices(paid), cross_links)


def _hosts(
    hosts: Hosts,
    model: str,
    load: tuple[int, int | None],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Splits of a cluster at a load of (context, requests)."""
    from lora_lab.timing.cluster import Load, cluster_report
    from lora_lab.timing.cluster_text import cluster_text, draw_cluster
    from lora_sdk.model.shapes import find_config

    config = find_config(model)
    found = cluster_report(config, model, hosts, Load(*load))
    if plot is not None:
        draw_cluster(plot, found)
        click.echo(f"wrote {plot}", err=True)
    click.echo(json.dumps(found, indent=2) if as_json else for_people(cluster_text(found)))


def _adapter(rank: int, mode: str | None) -> AdapterUse | None:
    """The adapter in the options, None for none."""
    from lora_lab.timing.adapter_ops import AdapterUse

    if rank == 0:
        if mode is not None:
            raise RequestError("--adapter-mode needs --adapter-rank")
        return None
    return AdapterUse(rank, mode or "bd")


def text(report: Report) -> str:
    """The report as text."""
    from lora_lab.timing.report import DETAIL_TITLES, EXPOSED, ROOF_TITLES, part_title

    speed = f"{report.tokens_per_second:.1f} tokens/s"
    lines = [
        f"modelled: {report.design} on {report.boards} x {report.board}, {report.model}: "
        f"{report.latency_ms:.3f} ms, {speed}"
    ]
    for name, value in report.details.items():
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        lines.append(f"  {DETAIL_TITLES.get(name, name.replace('_', ' ')):<24} {shown}")
    total = sum(report.breakdown_ms.values())
    for name, value in report.breakdown_ms.items():
        if value > 0:
            share = value / total
            lines.append(f"  {part_title(name):<24} {value:.3f} ms ({share:.1%})")
    for name, share in report.utilisation.items():
        lines.append(f"  {ROOF_TITLES[name]:<24} {share:.1%}")
    moved = ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in report.bytes.items())
    lines.append(f"  {'bytes per board':<24} {moved}")
    lines.append(f"  note: {EXPOSED}")
    lines.extend(f"  note: {note}" for note in report.notes if note != "modelled")
    return "\n".join(lines)


def _list(as_json: bool) -> None:
    from lora_host.overlay import overlay_names
    from lora_lab.timing.designs import design_names, load_design
    from lora_lab.timing.facts import board_facts, board_names
    from lora_lab.timing.source_target import CHANNELS, SOURCE_TARGETS
    from lora_lab.timing.wide_card import wide_card, wide_names
    from lora_sdk.model.shapes import SHAPES

    designs = {name: load_design(name) for name in design_names()}
    boards = {name: board_facts(name).title for name in board_names()}
    if as_json:
        shown = {name: {"title": d.title, "boards": d.boards} for name, d in designs.items()}
        found = {
            "designs": shown, "source": list(SOURCE_TARGETS), "wide": wide_names(),
            "overlays": overlay_names(), "boards": boards, "models": list(SHAPES),
        }  # fmt: skip
        click.echo(json.dumps(found, indent=2))
        return
    click.echo("designs")
    for name, design in designs.items():
        show(f"  {name:<18} {', '.join(design.boards):<24} {design.title}")
    for name, overlay in SOURCE_TARGETS.items():
        with_channels = " with 32 channels and pipes" if name == CHANNELS else ""
        show(
            f"  {name:<18} {'u280':<24} hardware source of overlays/rtl{with_channels}, clock of "
            f"{overlay}"
        )
    for name in wide_names():
        card = wide_card(name)
        show(f"  {name:<18} {card.board:<24} {card.title}")
    for name in overlay_names():
        show(f"  {name:<18} {'emulated overlay, ideal units'}")
    click.echo("boards")
    for name, title in boards.items():
        show(f"  {name:<18} {title}")
    show("models\n  " + ", ".join(SHAPES) + ", or a folder with config.json")


def _fleet(path: Path, as_json: bool) -> None:
    from lora_lab.fleet.description import read_fleet
    from lora_lab.fleet.report import report
    from lora_lab.fleet.report import text as fleet_text

    fleet = read_fleet(path)
    with ProgressBar("requests", unit="request") as progress:
        found = report(fleet, progress)
    click.echo(json.dumps(found, indent=2) if as_json else for_people(fleet_text(found)))


def _validate(status: str | None, as_json: bool) -> None:
    from lora_lab.timing.validate import STATUSES, summary, table, validate

    if status not in (None, *STATUSES):
        raise RequestError(f"status {status!r}; expected one of {', '.join(STATUSES)}")
    rows = validate(status)
    if as_json:
        found: dict[str, Any] = {"rows": [row.as_dict() for row in rows], "summary": summary(rows)}
        click.echo(json.dumps(found, indent=2))
    else:
        show(table(rows))


def _resources(design: str | None, as_json: bool) -> None:
    from lora_lab.timing.fit import fit, fit_lines, fit_names

    found = [fit(name) for name in ((design,) if design is not None else fit_names())]
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in found], indent=2))
    else:
        show("\n".join(line for one in found for line in fit_lines(one)))


def _analyses(as_json: bool) -> None:
    from lora_lab.timing.analyses import analyses_text, every_analysis

    found = every_analysis()
    click.echo(json.dumps(found, indent=2) if as_json else for_people(analyses_text(found)))


def _trace(
    path: Path,
    design: str,
    board: str | None,
    model: str,
    boards: int,
    context: int | None,
    mode: str,
    verify_length: int | None,
    adapter: AdapterUse | None,
    links: tuple[int, bool],
) -> None:
    from lora_lab.timing.step import decode, verify
    from lora_lab.timing.target import make_target
    from lora_lab.timing.trace import trace_target, write_trace
    from lora_sdk.model.shapes import find_config

    if context is None:
        raise RequestError("--trace shows one step; give --context")
    rows = verify_length or 1
    shape = verify(rows, context) if mode == "sd" and rows > 1 else decode(context)
    target = make_target(design, board, find_config(model), boards, adapter, *links)
    dropped = write_trace(path, trace_target(target, shape))
    show(f"wrote {path}: {dropped} events dropped", err=True)
