"""`lora boardd`: serves this host's boards to other hosts and processes."""

from __future__ import annotations

import json
import pwd
import signal
import sys
from pathlib import Path
from typing import Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.lazy_group import WholeGroup

SERVE = """\b
Examples:
  lora boardd serve --board emu:u280 --socket /tmp/boards.sock
  lora boardd serve --board xrt:0000:3b:00.1 --listen lab1:7410 --keys DIR

\b
A cable between emulated boards of two daemons; a ring of 2 + 2 boards:
  lab1$ lora boardd serve --board emu:u280 --board emu:u280 \\
          --listen lab1 --keys lab1 \\
          --cable 0.1-1.0 --cable 1.1=tcp:lab2:7410/emu:u280/0.0 \\
          --cable 0.0=tcp:lab2:7410/emu:u280/1.1
  lab2$ lora boardd serve --board emu:u280 --board emu:u280 \\
          --listen lab2 --keys lab2 \\
          --cable 0.1-1.0

Ctrl-C and SIGTERM end all connections and give the boards back."""
STATUS = """\b
Examples:
  lora boardd status unix:/tmp/boards.sock
  LORA_BOARDD_KEYS=~/lab-keys/client lora boardd status tcp:lab1:7410 --json"""
INIT = """\b
Examples:
  lora boardd init ~/lab-keys --host lab1 --host lab2 --host 10.0.0.7

Copy ~/lab-keys/lab1 to lab1, and so on; ~/lab-keys/client to every client, as
~/.config/lora/boardd or as LORA_BOARDD_KEYS names it. ca-key.pem stays where it is."""


@click.group("boardd", cls=WholeGroup)
def boardd() -> None:
    """Serve boards to other hosts and processes."""


@boardd.command("serve", epilog=SERVE)
@click.option("--board", "boards", multiple=True, required=True, metavar="URI", help="a board")
@click.option("--socket", metavar="PATH", help="Unix socket to listen at")
@click.option("--listen", metavar="HOST:PORT", help="TCP address to listen at, with TLS")
@click.option("--keys", metavar="DIR", help="folder of keys of this host, for --listen")
@click.option("--user", "users", multiple=True, help="who may use the socket, beside you and root")
@click.option("--cable", "cables", multiple=True, metavar="A.P-B.Q", help="of emulated boards")
@click.option("--overlay", help="whose clock and links emulated boards have")
@click.option("--kernels", default="native", show_default=True, help="of emulated boards")
@click.option("--speed", default=1, type=click.IntRange(1, 100), help="their seconds a second")
@click.option("--until-eof", is_flag=True, help="end when standard input ends, as with its parent")
@click.option("--json", "as_json", is_flag=True, help="what is served as one JSON object")
def serve(boards: tuple[str, ...], until_eof: bool, as_json: bool, **options: Any) -> None:
    """Serve boards of this host until Ctrl-C. Each has one client at a time."""
    from lora_host.boardd.daemon import Daemon

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # while boards are opened
    if until_eof:
        from lora_host.boardd.input_end import end_with_input

        end_with_input()
    with Daemon(_settings(boards, options)) as daemon:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: daemon.stop())
        if as_json:
            click.echo(json.dumps({"boards": daemon.boards, "addresses": daemon.addresses}))
        for address in () if as_json else daemon.addresses:
            for board in daemon.boards:
                click.echo(f"{address}/{board}")
        sys.stdout.flush()
        daemon.run()


def _settings(boards: tuple[str, ...], options: dict[str, Any]) -> Any:
    from lora_host.boardd.settings import Settings, parse_cables, parse_listen
    from lora_host.device_uri import is_emulated

    near, far = parse_cables(options["cables"], sum(map(is_emulated, boards)))
    return Settings(
        boards=boards,
        listen=None if options["listen"] is None else parse_listen(options["listen"]),
        socket=None if options["socket"] is None else Path(options["socket"]).absolute(),
        keys=None if options["keys"] is None else Path(options["keys"]).expanduser(),
        users=tuple(map(_user, options["users"])),
        cables=near,
        far_cables=far,
        overlay=options["overlay"],
        kernels=options["kernels"],
        speed=options["speed"],
    )


def _user(name: str) -> int:
    if name.isdecimal() and name.isascii():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise RequestError(f"--user {name!r}: no user of this computer") from None


@boardd.command("status", epilog=STATUS)
@click.argument("address")
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
def status(address: str, as_json: bool) -> None:
    """The boards of the daemon at ADDRESS (tcp:HOST:PORT or unix:PATH), and who holds each."""
    from lora_host.boardd.status import daemon_status

    states = daemon_status(address)
    if as_json:
        click.echo(json.dumps({"address": address, "boards": [vars(one) for one in states]}))
        return
    width = max((len(one.name) for one in states), default=0)
    for one in states:
        how = "runs, " if one.busy else ""
        click.echo(f"{one.name:<{width}}  {how}{f'held by {one.holder}' if one.holder else 'free'}")


@boardd.command("init", epilog=INIT)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--host", "hosts", multiple=True, required=True, help="a host with a daemon")
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
def init(folder: Path, hosts: tuple[str, ...], as_json: bool) -> None:
    """Make keys: a CA, a certificate for each host and for clients, and a token."""
    from lora_host.boardd.keys import write_keys

    made = write_keys(folder, hosts)
    if as_json:
        click.echo(json.dumps({"folders": [str(path) for path in made]}))
        return
    for path in made:
        click.echo(path)
