"""Boards of several replicas in one `/status`: numbered through, each with its own links."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lora_cluster.replicas.serving import ReplicaBackend
from lora_sdk import Engine
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.serve.board_metrics import read_boards
from lora_sdk.serve.served_board import served_boards


def replica(name: str, engine: Engine) -> Any:
    """What a backend asks a replica, answered by an engine of this process."""
    opened = SimpleNamespace(
        plan=engine.plan, boards=served_boards(engine), requests=4, node=f"node of {name}"
    )
    calls = SimpleNamespace(reading=lambda: read_boards(engine))
    return SimpleNamespace(name=name, opened=opened, calls=calls, lost=None)


@pytest.mark.slow
def test_peers_are_numbered_through() -> None:
    with Engine(boards=2) as first, Engine(boards=4) as second:
        fleet = SimpleNamespace(replicas=[replica("a", first), replica("b", second)])
        backend = ReplicaBackend(cast("Any", fleet), WeightNotices())
        reading = backend.read()
        rows = list(backend.board_rows(reading))
    assert [row["rank"] for row in rows] == list(range(6))
    assert {str(row["type"]) for row in rows} == {"emulated"}
    peers = [{link["peer"]["rank"] for link in cast("Any", row["links"])} for row in rows]
    assert peers == [{1}, {0}, {3, 5}, {2, 4}, {3, 5}, {2, 4}]
    assert (
        {link.board for link in reading.links}
        == set(range(6))
        == {link.peer_board for link in reading.links}
    )
