"""Flags that put engines on Ray nodes, and what they open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.core.options import EngineOptions
from lora_sdk.replicas.node_boards import KINDS

if TYPE_CHECKING:
    from lora_sdk.core.options import Progress
    from lora_sdk.core.weight_notices import OnNotice
    from lora_sdk.replicas.pool import ReplicaFleet
    from lora_sdk.spec.opening import SpeculationOptions

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_REPLICAS = 256


@dataclass(frozen=True)
class RayChoice:
    """What the flags of `ray_flags` say."""

    wanted: bool
    replicas: int
    kind: str
    address: str | None
    token: Path | None
    daemons: tuple[str, ...] = ()


def ray_flags(function: Function) -> Function:
    """--ray and its related options."""
    for option in (
        click.option("--ray-token-file", type=click.Path(path_type=Path), metavar="FILE",
                     help="with --ray-address: the cluster's token [as RAY_AUTH_MODE says]"),
        click.option("--ray-address", metavar="HOST:PORT",
                     help="Ray cluster [RAY_ADDRESS; that of lora ray start; else one of its own]"),
        click.option("--boardd", "daemons", multiple=True, metavar="ADDRESS",
                     help="with --ray: board daemon of a node, whose boards replicas have in place "
                     "of those of one node; may be repeated, in the order of the ring"),
        click.option("--board", type=click.Choice(KINDS),
                     help="with --ray: kind of the replicas' boards [u280]"),
        click.option("--replicas", type=click.IntRange(1, MOST_REPLICAS), metavar="N",
                     help="with --ray: engines, each with --boards boards of one node [1]"),
        click.option("--ray", is_flag=True, help="run replicas on the nodes of a Ray cluster"),
    ):  # fmt: skip
        function = option(function)
    return function


def take_ray(options: dict[str, Any]) -> RayChoice:
    """Remove the options of `ray_flags`. RequestError for one that has no effect."""
    names = ("replicas", "board", "ray_address", "ray_token_file")
    given = {name: options.pop(name) for name in names}
    wanted, daemons = options.pop("ray"), options.pop("daemons")
    for name, value in given.items():
        if value is not None and not wanted:
            raise RequestError(f"--{name.replace('_', '-')} needs --ray")
    if given["ray_token_file"] is not None and given["ray_address"] is None:
        raise RequestError("--ray-token-file needs --ray-address")
    if daemons and not wanted:
        raise RequestError("--boardd needs --ray; without it name boards with --device")
    return RayChoice(
        wanted,
        given["replicas"] or 1,
        given["board"] or KINDS[0],
        given["ray_address"],
        given["ray_token_file"],
        daemons,
    )


@contextmanager
def ray_cluster(
    choice: RayChoice, arguments: Mapping[str, Any], command: str
) -> Iterator[OpenReplicas]:
    """A connection to the chosen cluster, or to one of its own with these boards; then it ends with
    the program. `arguments`: those of the Engine. RequestError for those that replicas cannot have,
    and without Ray."""
    from lora_sdk.replicas.connection import connected, require_ray, use_loopback, use_token
    from lora_sdk.replicas.node import NodeOptions, own_nodes, running_node

    _check(arguments)
    opener = OpenReplicas(choice, _boards(choice, arguments), arguments)
    address, token = choice.address or os.environ.get("RAY_ADDRESS"), choice.token
    if address is None and (known := own_nodes()):
        address, token = known[0].address, known[0].token
    if address is not None:
        if arguments["devices"]:
            raise RequestError("--device is for this computer; nodes have their own boards")
        with connected(address, command, token):
            yield opener
        return
    if choice.daemons:
        raise RequestError(
            "--boardd names daemons of a cluster's nodes, and none runs here; start them with lora "
            "ray start --boardd, or name one with --ray-address"
        )
    boards = {choice.kind: list(arguments["devices"]) or _emulated(choice, opener.boards)}
    use_loopback("127.0.0.1:0")
    if "RAY_AUTH_MODE" in os.environ:
        del os.environ["RAY_AUTH_MODE"]  # the cluster has its own token
    _find_ray(command)
    with running_node(NodeOptions(boards, port=0, bound=True)) as node:
        use_token(node.token)
        require_ray(command)
        with connected(node.address, command, node.token):
            yield opener


@dataclass(frozen=True)
class OpenReplicas:
    """Opens the replicas that the flags ask for."""

    choice: RayChoice
    boards: int
    arguments: Mapping[str, Any]

    def __call__(
        self,
        speculation: SpeculationOptions | None,
        progress: Progress,
        on_notice: OnNotice | None = None,
    ) -> ReplicaFleet:
        """See open_replicas."""
        from lora_sdk.replicas.pool import open_replicas
        from lora_sdk.replicas.replica import ReplicaOptions

        engine = {
            name: value
            for name, value in self.arguments.items()
            if name not in ("devices", "boards", "cluster_file", "spares")
        }
        for name in ("model", "prefill_model", "kv_offload_dir", "overlay"):
            engine[name] = _absolute(engine[name])
        if speculation is not None and speculation.draft is not None:
            speculation = replace(speculation, draft=_absolute(speculation.draft))
        engine["speculation"] = speculation
        options = ReplicaOptions(self.choice.kind, self.boards, engine, self.choice.daemons)
        return open_replicas(self.choice.replicas, options, progress, on_notice)


def _check(arguments: Mapping[str, Any]) -> None:
    for name, flag in (("cluster_file", "--cluster"), ("spares", "--spare")):
        if arguments[name]:
            raise RequestError(f"{flag} is for boards of this computer; replicas take their node's")
    if arguments["scrub"] == "prove":
        raise RequestError(
            "--scrub prove proves the weights of one engine, and requests of replicas may move; "
            "use redo or fail"
        )


def _boards(choice: RayChoice, arguments: Mapping[str, Any]) -> int:
    """Boards of each replica."""
    _check_daemons(choice.daemons, arguments["boards"])
    devices = len(arguments["devices"])
    boards: int = arguments["boards"] or max(1, devices // choice.replicas)
    if devices and devices < boards * choice.replicas:
        raise RequestError(
            f"{counted(devices, 'device')}; {counted(choice.replicas, 'replica')} of "
            f"{counted(boards, 'board')} need "
            f"{choice.replicas * boards}"
        )
    EngineOptions(**{**arguments, "devices": _emulated(choice, boards)[:boards], "boards": boards})
    return boards


def _check_daemons(daemons: Sequence[str], boards: int | None) -> None:
    from lora_sdk.replicas.daemon_boards import split_address

    for address in daemons:
        split_address(address)
    if daemons and boards is None:
        raise RequestError("--boardd needs --boards: how many of their boards a replica has")


def _emulated(choice: RayChoice, boards: int) -> list[str]:
    return [f"emu:{choice.kind}"] * (boards * choice.replicas)


def _absolute(path: str | Path | None) -> str | Path | None:
    """A path as it is for another working folder; a name stays what it is."""
    return str(Path(path).resolve()) if path is not None and Path(path).exists() else path


def _find_ray(command: str) -> None:
    """RequestError without Ray. Does not import it: its settings come with the cluster."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise RequestError(f"{command} needs the package ray; install lora-fpga[ray]")
