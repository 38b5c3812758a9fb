"""`lora list`: the boards of this computer, and the processes that hold them."""

from __future__ import annotations

import itertools
import json
import sys
import time

import click

from lora_host.device_uri import EMULATED_SCHEME, SIMULATED_SCHEME, board_uris
from lora_host.errors import RequestError
from lora_host.lab.inventory import BoardView, inventory
from lora_sdk.cli.finite_number import FiniteNumber
from lora_sdk.cli.folding import show
from lora_sdk.cli.list_view import table

CLEAR = "\x1b[H\x1b[J"  # to the upper left corner, erase what follows


def _line(view: BoardView) -> str:
    links = " ".join(f"{p.port}:{'up' if p.healthy else f'{p.status:#06x}'}" for p in view.links)
    parts = [
        f"{view.uri:<22} {view.board:<5}",
        f"overlay {view.overlay or 'none'}",
        f"abi {view.abi}" if view.abi is not None else "",
        f"serial {view.serial}" if view.serial else "",
        f"{len(view.banks)} banks" if view.banks else "",
        f"link cores {' '.join(view.cores)}" if view.cores else "",
        f"links {links}" if links else "",
        " ".join(f"{name} {value}" for name, value in view.sensors.items()),
        f"held by {view.holder} ({view.holder_name})" if view.holder else "free",
        view.problem,
    ]
    return "  ".join(part for part in parts if part)


EPILOG = """\b
Examples:
  lora list
  lora list --watch
  lora list --watch --interval 10 --json >> boards.jsonl
"""


@click.command("list", epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="print JSON; with --watch a line each time")
@click.option("--watch", is_flag=True,
              help="temperature, power, links and holders, until Ctrl-C")  # fmt: skip
@click.option("--interval", default=2.0, show_default=True, metavar="SECONDS",
              type=FiniteNumber(0.1, 3600), help="time between two looks")  # fmt: skip
@click.option("--count", type=click.IntRange(1), metavar="N",
              help="end --watch after N looks")  # fmt: skip
def list_boards(as_json: bool, watch: bool, interval: float, count: int | None) -> None:
    """Show the boards of this computer by address, with overlay, ABI, links, sensors and the
    process that holds each. No board is opened or disturbed."""
    if watch:
        _watch(as_json, interval, count)
        return
    if count is not None:
        raise RequestError("--count needs --watch")
    views = inventory()
    if as_json:
        click.echo(json.dumps([view.to_json() for view in views], indent=2))
        return
    for view in views:
        show(_line(view))
    if not views:
        show("no board found on the PCI bus or through a runtime; run 'lora doctor' for the reason")
    show(f"emulated boards are always available: {', '.join(board_uris(EMULATED_SCHEME))}")
    cards = ", ".join(board_uris(SIMULATED_SCHEME))
    show(f"simulated cards, where 'make sim-build' was run: {cards}")


def _watch(as_json: bool, interval: float, count: int | None) -> None:
    """The boards every `interval` seconds: on a terminal in place, otherwise one after another."""
    for look in itertools.count(1):
        views = inventory()
        if as_json:
            text = json.dumps([view.to_json() for view in views])
        else:
            now = time.strftime("%H:%M:%S")
            found = table(views) if views else ["no board found; run 'lora doctor' for the reason"]
            text = "\n".join([f"{now}, every {interval:g} s", *found])
        sys.stdout.write(f"{CLEAR if sys.stdout.isatty() and not as_json else ''}{text}\n")
        sys.stdout.flush()
        if look == count:
            return
        time.sleep(interval)
