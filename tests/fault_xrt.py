"""Faults of boards behind the real XRT. It reads its environment once in a process, so an engine
with them runs in a process of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lora_host.device_process.__main__ import FOLDER_VARIABLE, SOCKET_NAME
from lora_host.device_process.cluster_process import FAULT
from lora_host.xrt_environment import XrtEnvironment
from lora_sdk import Engine
from tests.recovery_rig import Folders, opened

BOARDS = 2
SPEED = 10  # board seconds per second


@contextmanager
def environment() -> Iterator[XrtEnvironment]:
    """Two boards, whose clock runs ten times as fast."""
    with XrtEnvironment(BOARDS) as place:
        place.set_cluster(BOARDS, speed=SPEED)
        yield place


def send_fault(*numbers: int) -> None:
    """To the cluster process of this environment."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(Path(os.environ[FOLDER_VARIABLE]) / SOCKET_NAME))
        connection.sendall(FAULT + b" ".join(b"%d" % number for number in numbers))
        assert connection.recv(1), "refused: see cluster.log"


@contextmanager
def xrt(folders: Folders, **options: Any) -> Iterator[tuple[Engine, Callable[..., None]]]:
    """Inside an environment: an engine, and what sets a fault of board 1."""
    devices = tuple(f"xrt:{board}" for board in range(BOARDS))

    def fault(kind: int, *more: int) -> None:
        send_fault(*(1, kind, *more, 0, 0, 0)[:5])

    with opened(folders, None, devices=devices, **options) as engine:
        yield engine, fault
