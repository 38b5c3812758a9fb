"""Calls of a replica's process through Ray, each with a limit, and its loss as an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray

from lora_cluster.replicas.actor import GROUPS, Adapter, ReplicaActor
from lora_cluster.replicas.messages import Failure, Opened, raised
from lora_cluster.replicas.node_boards import resource
from lora_host.errors import TransportError, one_line

if TYPE_CHECKING:
    from lora_cluster.replicas.daemons import Span
    from lora_cluster.replicas.messages import Batch, Work
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.serve.board_metrics import BoardReading

SILENT_SECONDS = 120.0  # beyond the longest wait for a board, after which an actor has an error
CONTROL_SECONDS = 600.0  # an adapter is read from a disk
CLOSE_SECONDS = 15.0
LOOK_SECONDS = 0.25


class ActorLost(TransportError):
    """The process of a replica has ended, or does not answer."""


class ActorCalls:
    """One actor, from its creation until `kill`."""

    def __init__(self, name: str, kind: str, boards: int, span: Span | None = None) -> None:
        """Ask Ray for a place with so many boards of this kind, or, for boards behind daemons that
        serve, near the first. Does not wait."""
        self._name = name
        self._devices = () if span is None else span.devices
        options: dict[str, Any] = {
            "num_cpus": 0,  # boards are what is scarce
            "resources": {resource(kind): boards} if span is None else {},
            "concurrency_groups": GROUPS,
            "max_restarts": 0,  # the server restarts it, and sends its requests elsewhere
            "scheduling_strategy": "SPREAD" if span is None else _near(span.node),
        }
        self._actor: Any = ray.remote(**options)(ReplicaActor).remote()
        self._placed: Any = self._actor.progress.remote()

    def placed(self, seconds: float) -> bool:
        """Whether it runs on a node, waiting at most so long. ActorLost."""
        ready, _ = ray.wait([self._placed], timeout=seconds)
        if ready:
            self._get(self._placed, CONTROL_SECONDS)
        return bool(ready)

    def open(
        self,
        kind: str,
        boards: int,
        options: Mapping[str, Any],
        adapters: Sequence[Adapter],
        look: Callable[[int, int], None],
    ) -> Opened:
        """See ReplicaActor. `look` receives bytes loaded and in all; what it raises ends the wait.
        LoraError of opening the engine."""
        opening = self._actor.open.remote(
            kind, boards, self._devices, dict(options), list(adapters)
        )
        while True:
            ready, _ = ray.wait([opening], timeout=LOOK_SECONDS)
            if ready:
                found: Opened = self._answer(opening)
                return found
            look(*self._get(self._actor.progress.remote(), SILENT_SECONDS))

    def start(self, work: Work) -> None:
        """See ReplicaActor. Does not wait."""
        self._actor.start.remote(work)

    def cancel(self, numbers: Sequence[int]) -> None:
        """See ReplicaActor. Does not wait."""
        self._actor.cancel.remote(list(numbers))

    def news(self, seconds: float) -> Batch:
        """See ReplicaActor. ActorLost."""
        found: Batch = self._get(self._actor.news.remote(seconds), seconds + SILENT_SECONDS)
        return found

    def load_adapter(self, name: str, path: str, scale: float) -> AdapterInfo:
        """See Engine.load_adapter. ActorLost too."""
        found: AdapterInfo = self._answer(self._actor.load_adapter.remote(name, path, scale))
        return found

    def unload_adapter(self, name: str) -> None:
        """See Engine.unload_adapter. ActorLost too."""
        self._answer(self._actor.unload_adapter.remote(name))

    def adapters(self) -> list[AdapterInfo]:
        """See Engine.adapters. ActorLost too."""
        found: list[AdapterInfo] = self._answer(self._actor.adapters.remote())
        return found

    def confirm(self) -> None:
        """See Engine.confirm. ActorLost too."""
        self._answer(self._actor.confirm.remote())

    def reading(self) -> BoardReading:
        """The boards' counts. ActorLost too."""
        found: BoardReading = self._answer(self._actor.reading.remote())
        return found

    def close(self) -> None:
        """Give the boards back and end the process."""
        with suppress(Exception):
            ray.get(self._actor.close.remote(), timeout=CLOSE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process, whatever it does."""
        with suppress(Exception):
            ray.kill(self._actor)

    def _answer(self, asked: Any) -> Any:
        answer = self._get(asked, CONTROL_SECONDS)
        if isinstance(answer, Failure):
            raise raised(answer, f"{self._name}: ")
        return answer

    def _get(self, asked: Any, seconds: float) -> Any:
        try:
            return ray.get(asked, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            raise ActorLost(f"{self._name} did not answer for {seconds:g} s") from None
        except ray.exceptions.RayError as error:
            raise ActorLost(f"{self._name} was lost: {_reason(error)}") from None


def _near(node: str | None) -> Any:
    """On this node, while it lives."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return "SPREAD" if node is None else strategy(node, soft=True)


def _reason(error: Exception) -> str:
    """The first sentence of Ray's explanation, which has many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("The actor died", "The actor is dead"))]
    return one_line((told or lines or [type(error).__name__])[0])
