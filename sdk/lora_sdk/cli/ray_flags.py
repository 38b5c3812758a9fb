"""Flags that put engines on Ray nodes, and what they open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from lora_host.errors import RequestError
from lora_sdk.opening.options import BOARD_KINDS
from lora_sdk.optional import required_module

if TYPE_CHECKING:
    from lora_sdk.cli.adapters import TakesAdapters
    from lora_sdk.cli.batch_run import Runner
    from lora_sdk.opening.options import Progress
    from lora_sdk.opening.speculation_options import SpeculationOptions
    from lora_sdk.opening.weight_notices import OnNotice
    from lora_sdk.serve.backend import Backend

Function = TypeVar("Function", bound=Callable[..., Any])
LoadAdapters = Callable[["TakesAdapters"], None]
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
        click.option("--board", type=click.Choice(BOARD_KINDS),
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
        given["board"] or BOARD_KINDS[0],
        given["ray_address"],
        given["ray_token_file"],
        daemons,
    )


class OpensReplicas(Protocol):
    """Opens the replicas that the flags ask for."""

    def backend(
        self, speculation: SpeculationOptions | None, progress: Progress, load: LoadAdapters
    ) -> Backend:
        """For a server. `load` is given what loads adapters."""

    def runner(
        self,
        speculation: SpeculationOptions | None,
        progress: Progress,
        load: LoadAdapters,
        on_notice: OnNotice,
    ) -> AbstractContextManager[Runner]:
        """For a batch."""


class Replicas(Protocol):
    """Names of lora_cluster.cli.opening."""

    def ray_cluster(
        self, choice: RayChoice, arguments: Mapping[str, Any], command: str
    ) -> AbstractContextManager[OpensReplicas]:
        """A connection to the chosen cluster."""


def ray_cluster(
    choice: RayChoice, arguments: Mapping[str, Any], command: str
) -> AbstractContextManager[OpensReplicas]:
    """See lora_cluster.cli.opening. RequestError where that package is not installed."""
    module = cast(Replicas, required_module("lora_cluster.cli.opening", command))
    return module.ray_cluster(choice, arguments, command)
