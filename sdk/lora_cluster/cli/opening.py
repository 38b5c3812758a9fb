"""What `lora serve` and `lora batch` ask for by name, to run replicas (lora_sdk.cli.ray_flags)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_host.errors import LoraError, RequestError
from lora_host.naming import counted, install
from lora_sdk.opening.options import EngineOptions

if TYPE_CHECKING:
    from lora_cluster.dispatch.running import Running
    from lora_cluster.replicas.pool import ReplicaFleet
    from lora_sdk.cli.ray_flags import LoadAdapters, RayChoice
    from lora_sdk.engine.requests import Request
    from lora_sdk.engine.submission import Prompt
    from lora_sdk.opening.options import Progress
    from lora_sdk.opening.speculation_options import SpeculationOptions
    from lora_sdk.opening.weight_notices import OnNotice
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.serve.backend import Backend


@contextmanager
def ray_cluster(
    choice: RayChoice, arguments: Mapping[str, Any], command: str
) -> Iterator[OpenReplicas]:
    """A connection to the chosen cluster, or to one of its own with these boards; then it ends with
    the program. `arguments`: those of the Engine. RequestError for those that replicas cannot have,
    and without Ray."""
    from lora_cluster.replicas.connection import connected, require_ray, use_loopback, use_token
    from lora_cluster.replicas.node import NodeOptions, own_nodes, running_node

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

    def backend(
        self, speculation: SpeculationOptions | None, progress: Progress, load: LoadAdapters
    ) -> Backend:
        """For a server. `load` is given what loads adapters."""
        from lora_cluster.replicas.serving import ReplicaBackend
        from lora_sdk.opening.weight_notices import WeightNotices

        notices = WeightNotices()
        fleet = self._open(speculation, progress, notices.add)
        try:
            load(fleet)
        except BaseException:
            fleet.close()
            raise
        return ReplicaBackend(fleet, notices)

    @contextmanager
    def runner(
        self,
        speculation: SpeculationOptions | None,
        progress: Progress,
        load: LoadAdapters,
        on_notice: OnNotice,
    ) -> Iterator[FleetRunner]:
        """For a batch."""
        with self._open(speculation, progress, on_notice) as fleet:
            load(fleet)
            yield FleetRunner(fleet)

    def _open(
        self,
        speculation: SpeculationOptions | None,
        progress: Progress,
        on_notice: OnNotice | None = None,
    ) -> ReplicaFleet:
        """See open_replicas."""
        from lora_cluster.replicas.pool import open_replicas
        from lora_cluster.replicas.replica import ReplicaOptions

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


class FleetRunner:
    """Replicas that run a batch. See lora_sdk.cli.batch_run.Runner."""

    def __init__(self, fleet: ReplicaFleet) -> None:
        self._fleet = fleet
        self.room = sum(place.room for place in fleet.places)
        self.chat_tokens = fleet.chat_tokens
        self.confirm = fleet.confirm

    @property
    def lost(self) -> LoraError | None:
        """See Runner."""
        return self._fleet.lost

    def make(self, prompt: Prompt, params: SamplingParams) -> Request:
        """See Runner."""
        return self._fleet.replicas[0].requests.make(prompt, params)

    def start(self, request: Request, on_end: Callable[[], None]) -> Callable[[], None]:
        """See Runner."""
        running: Running = self._fleet.start([request], on_end)
        return running.cancel


def _check(arguments: Mapping[str, Any]) -> None:
    for name, flag in (("cluster_file", "--cluster"), ("spares", "--spare")):
        if arguments[name]:
            raise RequestError(f"{flag} is for boards of this computer; replicas take their node's")


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
    from lora_cluster.replicas.daemon_boards import split_address

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
        raise RequestError(f"{command} needs the package ray; {install('ray')}")
