"""A program that runs Ray nodes on loopback and ends them one by one: `python FILE NODES`, where
NODES is JSON, for each node "boards", their URIs by kind, and "daemon", the address that it
declares. Reads commands from standard input."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from lora_cluster.replicas.daemon_boards import DAEMON
from lora_cluster.replicas.node import STORE_BYTES
from lora_cluster.replicas.node_boards import BOARDS, encoded, resources


def main() -> None:
    cluster = Cluster(shutdown_at_exit=True)
    try:
        nodes = [added(cluster, **node) for node in json.loads(sys.argv[1])]
        cluster.wait_for_nodes(timeout=120)
        say(address=cluster.address, nodes=[node.node_id for node in nodes])
        for line in sys.stdin:
            word, argument = line.split()
            if word == "node":
                found = next(node for node in nodes if node.node_id == argument)
                cluster.remove_node(found, allow_graceful=False)
                say(ended=argument)
            else:  # any replica, as if the kernel had killed it
                pid = replicas()[int(argument)]
                os.kill(pid, signal.SIGKILL)
                say(ended=pid)
    finally:
        cluster.shutdown()


def added(cluster: Cluster, boards: dict[str, list[str]], daemon: str, attempts: int = 3) -> Any:
    """A node. Ray gives it 30 s to start, which is short on a busy machine."""
    try:
        return cluster.add_node(
            wait=False,
            num_cpus=1,
            resources={**resources(boards), f"{DAEMON}{daemon}": 1.0},
            env_vars={BOARDS: encoded(boards)},
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            include_log_monitor=False,
        )
    except Exception as error:
        if attempts == 1 or "timed out" not in str(error):
            raise
        return added(cluster, boards, daemon, attempts - 1)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def replicas() -> list[int]:
    """Processes of replicas below this one."""
    return [
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if named(pid).startswith("ray::ReplicaAct") and below(pid)
    ]


def named(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def below(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


if __name__ == "__main__":
    main()
