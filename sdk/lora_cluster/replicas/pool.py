"""A fleet of replicas: opened on Ray's nodes, supervised, behind one queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from lora_cluster.dispatch.fleet import Fleet
from lora_cluster.replicas.adapter_registry import AdapterRegistry
from lora_cluster.replicas.daemon_boards import chosen_boards, declared
from lora_cluster.replicas.daemons import Daemons, Span
from lora_cluster.replicas.node_boards import resource
from lora_cluster.replicas.replica import Replica, ReplicaOptions
from lora_cluster.replicas.routing import Router
from lora_cluster.replicas.supervisor import Stopped, Supervisor
from lora_host.errors import LoraError, RequestError
from lora_host.naming import counted

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.options import Progress
    from lora_sdk.opening.weight_notices import OnNotice


class ReplicaFleet(Fleet):
    """Replicas of one engine. `generate`, `stream` and their async forms are those of Fleet."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        supervisors: Sequence[Supervisor],
        daemons: Daemons | None = None,
    ) -> None:
        """Of replicas that are open; `supervisors` are those of the replicas, in their order.
        `daemons`, of their boards, end with the fleet."""
        self.replicas = replicas
        self._daemons = daemons
        self._supervisors = supervisors
        super().__init__(
            [],
            replicas,
            cluster_room=[one.opened.requests for one in replicas],
            route=Router(replicas).choose,
            supervised=True,
        )

    def listen(self) -> None:
        """Deliver what replicas send, from now on."""
        for supervisor in self._supervisors:
            supervisor.start()

    def close(self) -> None:
        """See Fleet."""
        self._dispatcher.refuse()
        for supervisor in self._supervisors:
            supervisor.stop()
        super().close()
        if self._daemons is not None:
            self._daemons.close()

    @property
    def model_path(self) -> Path:
        """See Engine."""
        return self.replicas[0].model_path

    @property
    def config(self) -> ModelConfig:
        """See Engine."""
        return self.replicas[0].config

    @property
    def context(self) -> int:
        """See Engine."""
        return self.replicas[0].context

    @property
    def new_tokens(self) -> int:
        """See Engine; of all replicas."""
        return sum(one.new_tokens for one in self.replicas)

    @property
    def lost(self) -> LoraError | None:
        """Why no replica runs or is started again; None while one does."""
        if any(place.lives for place in self.places):
            return None
        failures = [place.failure for place in self.places]
        return next(error for error in reversed(failures) if isinstance(error, LoraError))

    def adapters(self) -> list[AdapterInfo]:
        """Those of a replica that runs; every replica has the same."""
        for one in self.replicas:
            with suppress(LoraError):
                return one.adapters()
        return []


def open_replicas(
    count: int,
    options: ReplicaOptions,
    progress: Progress = lambda done, total: None,
    on_notice: OnNotice | None = None,
) -> ReplicaFleet:
    """Open so many replicas, all at once, on the nodes of the cluster that this program is
    connected to. `progress` receives bytes loaded of all. RequestError: the nodes have too few
    boards. LoraError of the first replica or daemon that cannot be opened; then none is left."""
    if not options.daemons:
        check_room(count, options)
        return _opened([None] * count, options, progress, on_notice, None)
    daemons = daemons_for(count, options)
    spans = daemons.open(progress)
    try:
        return _opened(spans, options, progress, on_notice, daemons)
    except BaseException:
        daemons.close()
        raise


def _opened(
    spans: Sequence[Span | None],
    options: ReplicaOptions,
    progress: Progress,
    on_notice: OnNotice | None,
    daemons: Daemons | None,
) -> ReplicaFleet:
    """A replica for each span. `daemons` are left to the caller if this raises."""
    registry = AdapterRegistry()
    replicas = [
        Replica(f"replica {index}", options, registry, on_notice, span)
        for index, span in enumerate(spans)
    ]
    known: list[ReplicaFleet] = []

    def lost(replica: Replica, error: LoraError, returns: bool) -> None:
        known[0].failed(replica, error, returns)

    def back(replica: Replica) -> None:
        known[0].restored(replica)

    supervisors = [Supervisor(one, lost, back) for one in replicas]
    try:
        _open_all(supervisors, progress)
        known.append(ReplicaFleet(replicas, supervisors, daemons))
    except BaseException:
        for one in replicas:
            one.close()
        raise
    known[0].listen()
    return known[0]


def _open_all(supervisors: Sequence[Supervisor], progress: Progress) -> None:
    loaded = {index: (0, 0) for index in range(len(supervisors))}
    failed = threading.Event()
    lock = threading.Lock()

    def opened(index: int) -> None:
        def look(done: int, total: int) -> None:
            if failed.is_set():
                raise Stopped("another replica could not be opened")
            with lock:
                loaded[index] = (done, total)
                each = list(loaded.values())
                progress(sum(one[0] for one in each), sum(one[1] for one in each))

        try:
            supervisors[index].open(look)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(supervisors)) as executor:
        futures = [executor.submit(opened, index) for index in loaded]
        try:
            errors = [error for one in futures if (error := one.exception()) is not None]
        except BaseException:  # Ctrl-C
            failed.set()
            raise
    for error in sorted(errors, key=lambda one: isinstance(one, Stopped)):
        raise error


def check_room(count: int, options: ReplicaOptions) -> None:
    """RequestError if the nodes' boards do not make so many replicas."""
    name, boards = resource(options.kind), options.boards
    nodes = {
        str(node["NodeManagerAddress"]) + " " + str(node["NodeID"])[:8]: int(
            node["Resources"].get(name, 0)
        )
        for node in ray.nodes()
        if node["Alive"]
    }
    possible = sum(have // boards for have in nodes.values())
    if possible < count:
        found = ", ".join(f"{node}: {have}" for node, have in nodes.items()) or "no nodes"
        raise RequestError(
            f"{count} replicas need {counted(boards, 'board')} ({options.kind}) of one node each, "
            f"for {possible} there are some ({name}: {found}); take fewer --replicas or --boards, "
            "or start more nodes with lora ray start",
            usage=False,
        )


def daemons_for(count: int, options: ReplicaOptions) -> Daemons:
    """The daemons that `options` name, for so many replicas, of the connected cluster's nodes.
    RequestError: see `chosen_boards`."""
    known = declared(ray.nodes(), options.kind)
    boards = chosen_boards(options.daemons, known, options.kind, count, options.boards)
    words = []
    for name, default in (("overlay", None), ("kernels", "native")):
        value = options.engine.get(name, default)
        if value != default:
            words += [f"--{name}", str(value)]
    return Daemons(boards, words)
