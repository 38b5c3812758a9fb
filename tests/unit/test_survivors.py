"""What is left of a cluster, and the names of what was lost."""

from __future__ import annotations

from lora_host.cluster_file import BoardEntry, ring
from lora_sdk.recovery.failover import Failover, Lost


def test_names_do_not_change_when_others_are_left_out() -> None:
    boards = [BoardEntry(f"xrt:{index}") for index in range(4)]
    survivors = Failover(boards, ring(4), None, ())
    assert survivors.name(Lost(board=1)) == "board 1 (xrt:1)"
    survivors.leave_out(Lost(board=1))
    survivors.use((0, 2))  # of 0, 2 and 3
    assert survivors.name(Lost(board=1)) == "board 3 (xrt:3)"
    ends = ((0, 1), (1, 0))
    assert survivors.name(Lost(cable=ends)) == (
        "the cable from board 0 (xrt:0) port 1 to board 3 (xrt:3) port 0"
    )
