"""Whether a board daemon has come through: no board is reserved, and its boards work."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lora_host import abi
from lora_host.boardd.status import daemon_status
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
from tests.transports import SHORT

FREE_S = 60


def check_alive(address: str, uris: Sequence[str]) -> None:
    """No board of the daemon at `address` is reserved, and those named do their work."""
    end = time.monotonic() + FREE_S
    while any(board.holder for board in daemon_status(address)):
        assert time.monotonic() < end, daemon_status(address)
        time.sleep(0.05)
    overlay = load_overlay("lora_f_u280")
    with Cluster.open(devices=uris, overlay=overlay, timeouts=SHORT) as cluster:
        for board in range(cluster.size):
            cluster.reserve(board, 0, 4096)
            cluster.write(board, 0, 64, b"alive")
            assert cluster.read(board, 0, 64, 5) == b"alive"
            assert cluster.register(board, 0, abi.REG_IDENTITY_ABI) == abi.ABI_NUMBER
