"""`lora list`: the boards of this computer, and the processes that hold them."""

from __future__ import annotations

import json

import click

from lora_host.lab.inventory import BoardView, inventory


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


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_boards(as_json: bool) -> None:
    """Show the boards of this computer by address, with overlay, ABI, links, sensors and the
    process that holds each. No board is opened or disturbed."""
    views = inventory()
    if as_json:
        click.echo(json.dumps([view.to_json() for view in views], indent=2))
        return
    for view in views:
        click.echo(_line(view))
    if not views:
        click.echo(
            "no board found on the PCI bus or through a runtime; run 'lora doctor' for the reason"
        )
    click.echo("emulated boards are always available: emu:u280, emu:v80")
