"""`lora ray`: nodes of a Ray cluster on this computer."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lora_host.errors import RequestError
from lora_host.naming import counted, install
from lora_sdk.cli.lazy_group import WholeGroup

EPILOG = """\b
Examples:
  lora ray start                               # the boards of lora list
  lora ray start --emulated u280=4
  lora ray start --host 10.0.0.1 --insecure    # the first of several hosts
  lora ray start --host 10.0.0.2 --join 10.0.0.1:6379 --insecure \\
      --token-file token
  lora ray start --host 10.0.0.2 --join 10.0.0.1:6379 --insecure \\
      --token-file token --boardd tcp:lab2:7410 --keys ~/lab-keys/lab2
  lora ray status
  lora ray stop

Ray lets whoever has its token run programs on all nodes, and its messages are
not encrypted: keep its ports inside a network that you trust, or set
RAY_USE_TLS=1 and the certificates that Ray then asks for.
Exit code: 0 done, 1 failed, 2 refused."""


@click.group("ray", epilog=EPILOG, cls=WholeGroup)
def ray_group() -> None:
    """Start, show and stop nodes of a Ray cluster, on which lora serve --ray runs replicas."""


START = """\b
Examples:
  lora ray start
  lora ray start --emulated u280=4
"""


@ray_group.command("start", epilog=START)
@click.option("--emulated", multiple=True, metavar="KIND=N",
              help="emulated boards, such as u280=4; repeatable [those found here]")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="this computer's address for other nodes")  # fmt: skip
@click.option("--port", default=6379, show_default=True, type=click.IntRange(0, 65535),
              help="of the first node; 0: a free one")  # fmt: skip
@click.option("--join", metavar="HOST:PORT", help="a cluster's first node, for a further one")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="the cluster's token [a new one; with --join needed]")  # fmt: skip
@click.option("--boardd", "daemon", metavar="ADDRESS",
              help="of a board daemon for these boards: tcp:HOST:PORT or unix:PATH")  # fmt: skip
@click.option("--keys", type=click.Path(path_type=Path), metavar="DIR",
              help="this host's folder of lora boardd init [LORA_BOARDD_KEYS]")  # fmt: skip
@click.option("--insecure", is_flag=True, help="listen beyond this computer without TLS")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def start(
    emulated: tuple[str, ...],
    host: str,
    port: int,
    join: str | None,
    token_file: Path | None,
    daemon: str | None,
    keys: Path | None,
    insecure: bool,
    as_json: bool,
) -> None:
    """Start a node that declares its boards, in the background."""
    from lora_cluster.replicas import node_boards
    from lora_cluster.replicas.node import NodeOptions, start_node

    _check_host(host, join, insecure)
    if join is not None and token_file is None:
        raise RequestError("--join needs --token-file: the token of the cluster's first node")
    keys = None if keys is None else keys.expanduser()
    _check_daemon(daemon, keys)
    named = node_boards.emulated(emulated)
    _require()
    boards = named or node_boards.found_boards()
    if not boards:
        raise RequestError(
            "this computer has no boards (lora list); name emulated ones with --emulated u280=4",
            usage=False,
        )
    record = start_node(NodeOptions(boards, host, port, join, token_file, daemon=daemon, keys=keys))
    if as_json:
        told = {"address": record.address, "pid": record.pid, "boards": record.boards}
        click.echo(json.dumps({**told, "token_file": str(record.token)}))
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in record.boards.items())
    click.echo(f"Ray node of process {record.pid} at {record.address}: {counts}")
    click.echo(f"token for other nodes and programs: {record.token}")


STOP = """\b
Examples:
  lora ray stop
"""


@ray_group.command("stop", epilog=STOP)
def stop() -> None:
    """Stop the nodes that lora ray start has started here, and all that runs on them."""
    from lora_cluster.replicas.node import clear_stale, own_nodes, stop_node

    known = own_nodes()
    for record in reversed(known):  # the first node last
        stop_node(record)
        click.echo(f"stopped the Ray node of process {record.pid} at {record.address}")
    clear_stale()
    if not known:
        click.echo("no Ray node of lora ray start runs here")


STATUS = """\b
Examples:
  lora ray status
"""


@ray_group.command("status", epilog=STATUS)
@click.option("--ray-address", metavar="HOST:PORT", help="[RAY_ADDRESS; that of lora ray start]")
@click.option("--ray-token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="the cluster's token [as RAY_AUTH_MODE says]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def status(ray_address: str | None, ray_token_file: Path | None, as_json: bool) -> int:
    """Show the cluster's nodes, boards and board daemons. Exit code 1 if no cluster runs."""
    from lora_cluster.replicas.connection import connected
    from lora_cluster.replicas.node import own_nodes

    address, token = ray_address or os.environ.get("RAY_ADDRESS"), ray_token_file
    if address is None and (known := own_nodes()):
        address, token = known[0].address, known[0].token
    if address is None:
        click.echo("no Ray node of lora ray start runs here")
        return 1
    _require()
    with connected(address, "lora ray status", token):
        told = {"address": address, **_cluster()}
    if as_json:
        click.echo(json.dumps(told))
        return 0
    click.echo(f"Ray cluster at {address}")
    for node in told["nodes"]:
        boards = ", ".join(f"{count} {kind}" for kind, count in node["boards"].items())
        alive = "alive" if node["alive"] else "dead"
        click.echo(f"  {node['id'][:8]}  {node['address']:<16}{alive:<7}{boards or 'no boards'}")
    free = ", ".join(f"{count} {kind}" for kind, count in told["free"].items())
    click.echo(f"free: {free or 'no boards'}")
    for one in told["daemons"]:
        click.echo(f"boardd {one['address']} of {one['node'][:8]}: {_said(one)}")
    return 0


def _cluster() -> dict[str, Any]:
    """Nodes, free boards and board daemons of the connected cluster."""
    import ray

    nodes = [
        {
            "id": node["NodeID"],
            "address": node["NodeManagerAddress"],
            "alive": node["Alive"],
            "boards": _boards(node["Resources"]),
        }
        for node in ray.nodes()
    ]
    free = _boards(ray.available_resources())
    return {"nodes": nodes, "free": free, "daemons": list(_daemons(ray.nodes()))}


def _daemons(nodes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that live nodes declare; without "pid" where none runs."""
    from lora_cluster.replicas.daemon_boards import DAEMON
    from lora_cluster.replicas.daemon_calls import daemon_state

    for node in nodes:
        for name in node["Resources"] if node["Alive"] else ():
            if name.startswith(DAEMON):
                address = name.removeprefix(DAEMON)
                state = daemon_state(address)
                yield {
                    **({} if state is None else vars(state)),
                    "address": address,
                    "node": node["NodeID"],
                }


def _said(daemon: Mapping[str, Any]) -> str:
    """What `_daemons` has found, in words."""
    if "pid" not in daemon:
        return "no program uses it"
    boards, ends = ", ".join(daemon["boards"]), counted(daemon["restarts"], "restart")
    serves = f"process {daemon['pid']} serves {boards}" if boards else "it does not serve"
    return f"{serves}; {ends}" + (f" ({daemon['cause']})" if daemon["cause"] else "")


def _boards(resources: dict[str, float]) -> dict[str, int]:
    from lora_cluster.replicas.node_boards import resource
    from lora_sdk.opening.options import BOARD_KINDS

    return {
        kind: int(resources[name]) for kind in BOARD_KINDS if (name := resource(kind)) in resources
    }


def _check_host(host: str, join: str | None, insecure: bool) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise RequestError(f"--host {host!r:.60}; expected this computer's IP address") from None
    if loopback and host != "127.0.0.1":
        raise RequestError(f"--host {host}; Ray's loopback address is 127.0.0.1")
    if loopback and join is not None:
        raise RequestError("--join needs --host: an address that the other nodes reach")
    if not loopback and not insecure and os.environ.get("RAY_USE_TLS") != "1":
        raise RequestError(
            f"--host {host} is reached from other machines, and Ray's messages are not encrypted; "
            "set RAY_USE_TLS=1 and its certificates, or give --insecure in a network you trust"
        )


def _check_daemon(daemon: str | None, keys: Path | None) -> None:
    """RequestError, TransportError: a bad address, or no keys for it."""
    from lora_cluster.replicas.daemon_boards import split_address
    from lora_host.boardd.keys import read_token
    from lora_host.boardd.status import keys_folder

    remote = None if daemon is None else split_address(daemon)
    if keys is not None or (remote is not None and remote.has_keys):
        read_token(keys or keys_folder())


def _require() -> None:
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise RequestError(f"lora ray needs the package ray; {install('ray')}")
