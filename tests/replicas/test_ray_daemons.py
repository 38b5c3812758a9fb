"""A replica over the boards of two nodes, whose daemons are supervised by actors: the texts of four
local boards, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lora_cluster.replicas.connection import connected
from lora_host.boardd.status import daemon_status
from lora_host.errors import LoraError, RequestError
from lora_sdk import Engine, Result, SamplingParams
from tests.commands import LORA, command
from tests.replicas.conftest import RayNodes

pytestmark = pytest.mark.ray
PROMPTS = ("import os\n", "def f(x):\n    ", "class Été:\n", "x = [1, 2") * 2
OPTIONS: dict[str, Any] = {"context": 128, "max_sequences": 4, "threads": 1}
END_S = 600.0  # a busy machine takes a minute to start a process of Ray's
KILLED_AT = 30  # tokens of all requests


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    with Engine(boards=4, **OPTIONS) as engine:
        return run(engine)


@pytest.fixture(scope="module")
def daemons(nodes: RayNodes) -> list[str]:
    return nodes.daemons[1:]


@pytest.fixture(scope="module")
def connection(nodes: RayNodes) -> Iterator[None]:
    with (
        pytest.MonkeyPatch.context() as patch,
        connected(nodes.address, "the test", nodes.token),
    ):
        patch.setattr("lora_cluster.replicas.daemons.START_SECONDS", END_S)
        patch.setattr("lora_cluster.replicas.supervisor.PLACE_SECONDS", END_S)
        yield


@pytest.fixture(scope="module")
def fleet(connection: None, daemons: list[str]) -> Iterator[Any]:
    from lora_cluster.replicas.pool import open_replicas
    from lora_cluster.replicas.replica import ReplicaOptions

    options = ReplicaOptions("u280", 4, {**OPTIONS, "daemon_wait": END_S}, daemons)
    with open_replicas(1, options) as replicas:
        yield replicas


def run(engine: Any, on_delta: Callable[[Any], None] | None = None) -> list[list[str]]:
    """Texts of mixed requests, all at once."""
    params = [
        SamplingParams(
            max_tokens=10 + index, ignore_eos=True, temperature=0.8 * (index % 3), seed=index
        )
        for index in range(len(PROMPTS))
    ]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        asked = [
            pool.submit(engine.generate, prompt, one, on_delta=on_delta)
            for prompt, one in zip(PROMPTS, params, strict=True)
        ]
        return [texts(one.result()) for one in asked]


def texts(result: Any) -> list[str]:
    assert isinstance(result, Result)
    return [output.text for output in result.outputs]


def serves(address: str) -> Any:
    """What the actor says of its daemon, once that one serves."""
    from lora_cluster.replicas.daemon_calls import daemon_state

    end = time.monotonic() + END_S
    while (state := daemon_state(address)) is None or not state.boards:
        assert time.monotonic() < end, state
        time.sleep(0.1)
    return state


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(address: str, pid: int) -> None:
    """The process has ended, and nobody listens there."""
    end = time.monotonic() + END_S
    while runs(pid):
        assert time.monotonic() < end
        time.sleep(0.05)
    with pytest.raises(LoraError, match="no board daemon answers"):
        daemon_status(address)


def killing(fleet: Any, pid: int) -> list[list[str]]:
    """The texts, while this process is killed in the middle of the requests."""
    seen: list[Any] = []

    def received(delta: Any) -> None:
        seen.append(delta)
        if len(seen) == KILLED_AT:
            os.kill(pid, signal.SIGKILL)

    found = run(fleet, received)
    assert len(seen) > KILLED_AT
    return found


def check_whole(fleet: Any, daemons: list[str]) -> None:
    """The replica has all four boards, on the nodes that declare the daemons."""
    for address in daemons:
        assert [bool(board.holder) for board in daemon_status(address)] == [True, True]
    assert all(place.failure is None for place in fleet.places)


def test_two_nodes_give_the_texts_of_four_local_boards(
    fleet: Any, nodes: RayNodes, daemons: list[str], expected: list[list[str]]
) -> None:
    assert run(fleet) == expected
    check_whole(fleet, daemons)
    assert [serves(address).node for address in daemons] == nodes.ids[1:]


def test_a_killed_daemon_is_started_again(
    fleet: Any, daemons: list[str], expected: list[list[str]]
) -> None:
    before = serves(daemons[1])
    assert killing(fleet, before.pid) == expected
    after = serves(daemons[1])
    assert (after.pid != before.pid, after.restarts) == (True, before.restarts + 1)
    assert after.cause == f"process {before.pid} was ended by SIGKILL"
    check_whole(fleet, daemons)


def test_a_killed_actor_is_started_again_with_its_daemon(
    fleet: Any, daemons: list[str], expected: list[list[str]]
) -> None:
    before = serves(daemons[0])
    assert killing(fleet, parent(before.pid)) == expected
    after = serves(daemons[0])
    assert after.pid != before.pid and not runs(before.pid)
    assert after.cause == "the process that supervised it was lost"
    check_whole(fleet, daemons)


def test_a_killed_replica_finds_its_boards_again(
    fleet: Any, daemons: list[str], expected: list[list[str]]
) -> None:
    before = [serves(address).pid for address in daemons]
    assert killing(fleet, fleet.replicas[0].opened.pid) == expected
    assert [serves(address).pid for address in daemons] == before
    check_whole(fleet, daemons)


def test_status_shows_daemons(fleet: Any, nodes: RayNodes, daemons: list[str]) -> None:
    words = ("ray", "status", "--ray-address", nodes.address, "--ray-token-file", nodes.token)
    told = json.loads(command(LORA, *words, "--json").stdout)["daemons"]
    known = {one["address"]: one for one in told}
    assert set(known) == set(nodes.daemons) and "pid" not in known[nodes.daemons[0]]
    for address in daemons:
        assert known[address]["boards"] == ["emu:u280/0", "emu:u280/1"]
        assert known[address]["restarts"] >= 1
    shown = command(LORA, *words).stdout.decode()
    assert f"boardd {nodes.daemons[0]} of {nodes.ids[0][:8]}: no program uses it" in shown
    assert "serves emu:u280/0, emu:u280/1; 1 restart (process " in shown


def test_what_a_program_leaves_is_taken_by_the_next(
    connection: None, nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon ends with the program's actor, and another actor serves the same boards."""
    import ray

    from lora_cluster.replicas.pool import daemons_for
    from lora_cluster.replicas.replica import ReplicaOptions

    monkeypatch.setattr("lora_cluster.replicas.daemon_calls.NAME_SECONDS", 0.0)
    address = nodes.daemons[0]
    for end in ("killed", "closed"):
        daemons = daemons_for(1, ReplicaOptions("u280", 2, {}, (address,)))
        daemons.open(lambda done, total: None)
        pid = serves(address).pid
        with pytest.raises(RequestError, match="belongs to another program"):
            daemons_for(1, ReplicaOptions("u280", 2, {}, (address,))).open(lambda done, total: None)
        if end == "killed":
            ray.kill(ray.get_actor(f"boardd {address}", namespace="lora"))
        else:
            daemons.close()
        until_gone(address, pid)


def test_what_cannot_be_served_is_told(connection: None, nodes: RayNodes) -> None:
    from lora_cluster.replicas.pool import daemons_for
    from lora_cluster.replicas.replica import ReplicaOptions

    with pytest.raises(RequestError, match=r"no node declares the board daemon tcp:nobody:1"):
        daemons_for(1, ReplicaOptions("u280", 2, {}, ("tcp:nobody:1",)))
    daemons = daemons_for(1, ReplicaOptions("u280", 2, {}, (nodes.daemons[0],)))
    port = int(nodes.daemons[0].rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LoraError, match=r"not serve: process \d+ ended with code 1: .*in use"),
    ):
        daemons.open(lambda done, total: None)


def test_closing_gives_the_boards_back(fleet: Any, daemons: list[str]) -> None:
    import ray

    pids = [serves(address).pid for address in daemons]
    fleet.close()
    for address, pid in zip(daemons, pids, strict=True):
        until_gone(address, pid)
    end = time.monotonic() + END_S
    while ray.available_resources().get("fpga_u280") != 6:
        assert time.monotonic() < end, ray.available_resources()
        time.sleep(0.1)
