"""A process of Ray's that keeps a board daemon of its node running."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from lora_cluster.replicas.daemon_command import serve_command, served_boards
from lora_cluster.replicas.messages import DaemonState
from lora_cluster.replicas.node_boards import free_boards
from lora_cluster.replicas.supervised_process import KeptProcess, KeptState


class DaemonActor:
    """Ray starts it again, with the same arguments, when its process or node has ended; the daemon
    ends with it."""

    def __init__(
        self, address: str, kind: str, count: int, cables: Sequence[str], options: Sequence[str]
    ) -> None:
        """A daemon at this address for so many of the node's boards; see `serve_command`."""
        self._address = address
        self._wanted = (kind, count)
        self._words = (cables, options)
        self._boards: list[str] = []
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        before = KeptState()
        if context.was_current_actor_reconstructed:
            before = KeptState(restarts=1, cause="the process that supervised it was lost")
        self._kept = KeptProcess(f"boardd {address}", self._command, before=before)
        self._kept.start()

    def state(self) -> DaemonState:
        """Now."""
        now = self._kept.state
        boards = served_boards(now.told)
        return DaemonState(self._address, self._node, now.pid, boards, now.restarts, now.cause)

    def stop(self) -> None:
        """End the daemon, and return once it has given its boards back."""
        self._kept.stop()

    def _command(self) -> list[str]:
        if not self._boards:  # the same ones after each restart
            self._boards = free_boards(*self._wanted)
        return serve_command(self._address, self._boards, *self._words)
