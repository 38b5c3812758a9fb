"""Calls of the actor that supervises a board daemon, each with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray

from lora_cluster.replicas.connection import NAMESPACE
from lora_cluster.replicas.daemon_actor import DaemonActor
from lora_cluster.replicas.daemon_boards import DAEMON
from lora_cluster.replicas.messages import DaemonState
from lora_cluster.replicas.node_boards import resource
from lora_cluster.replicas.supervised_process import STOP_SECONDS
from lora_host.errors import LoraError, RequestError

STATE_SECONDS = 5.0  # it answers at once, or its process is being started
NAME_SECONDS = 10.0  # in which Ray forgets an actor of a program that has ended
SILENT = "its actor does not answer"
ENVIRONMENT = {"RAY_kill_child_processes_on_worker_exit": "0"}
"""A daemon ends by itself with its actor, and gives its boards back first."""


class DaemonCalls:
    """One actor. It is placed on the node that declares the address, with all its boards."""

    def __init__(
        self, address: str, kind: str, count: int, cables: Sequence[str], options: Sequence[str]
    ) -> None:
        """Ask Ray for it. RequestError: another program has it."""
        self.address = address
        made = ray.remote(
            num_cpus=0,
            resources={resource(kind): count, f"{DAEMON}{address}": 1},
            max_restarts=-1,
            name=_name(address),
            namespace=NAMESPACE,
            runtime_env={"env_vars": ENVIRONMENT},
        )(DaemonActor)
        self._actor = _first(lambda: made.remote(address, kind, count, cables, options), address)

    def state(self) -> DaemonState | None:
        """Now; None while there is no process to ask."""
        return asked(self._actor)

    def stop(self) -> None:
        """End daemon and actor."""
        if self.state() is not None:  # else it has no place
            with suppress(Exception):
                ray.get(self._actor.stop.remote(), timeout=STOP_SECONDS + STATE_SECONDS)
        with suppress(Exception):
            ray.kill(self._actor)


def daemon_state(address: str) -> DaemonState | None:
    """Of a daemon that any program has placed. None: no program has."""
    try:
        actor = ray.get_actor(_name(address), namespace=NAMESPACE)
    except ValueError:
        return None
    return asked(actor) or DaemonState(address, "", None, (), 0, SILENT)


def asked(actor: Any) -> DaemonState | None:
    """What an actor says of its daemon, None if it does not answer."""
    try:
        found: DaemonState = ray.get(actor.state.remote(), timeout=STATE_SECONDS)
    except (ray.exceptions.RayError, TimeoutError):
        return None
    return found


def _first(make: Callable[[], Any], address: str) -> Any:
    end = time.monotonic() + NAME_SECONDS
    while True:
        try:
            return make()
        except ValueError as error:
            if time.monotonic() > end:
                raise RequestError(
                    f"the board daemon {address} belongs to another program on this cluster; end "
                    f"it, or name another daemon",
                    usage=False,
                ) from error
        except ray.exceptions.RayError as error:
            raise LoraError(f"the board daemon {address} cannot be placed: {error}") from None
        time.sleep(0.2)


def _name(address: str) -> str:
    return f"boardd {address}"
