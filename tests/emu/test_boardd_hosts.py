"""Boards of two daemons, each a process of its own, form one cluster: the bytes of as many local
boards."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.boardd.status import daemon_status
from lora_host.cluster import Cluster
from lora_host.cluster_file import ring
from lora_host.overlay import load_overlay
from lora_sdk import Engine, SamplingParams
from tests.cut_proxy import CutProxy
from tests.daemon_pair import HOST, Pair, make_keys
from tests.daemons import DaemonProcess
from tests.recovery_rig import Disturbed, Folders, mixed, opened, speculation, texts, write_folders

PROMPTS = ("import os\n", "def parse(")
SEEDS = (3, pytest.param(8, marks=pytest.mark.slow))


@pytest.fixture(scope="module", params=["unix", pytest.param("tcp", marks=pytest.mark.slow)])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Joined by cables over Unix sockets, or over TLS."""
    keys = None
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tcp":
            pytest.importorskip("cryptography")
            keys = make_keys(tmp_path_factory.mktemp("hosts") / "keys")
            patch.setenv("LORA_BOARDD_KEYS", str(keys / "client"))
        with Pair(tmp_path_factory.mktemp("daemons"), keys) as made:
            assert all(uri.startswith(request.param) for uri in made.devices)
            yield made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("models"))


def test_links_come_up_between_the_hosts(pair: Pair) -> None:
    """Payload both ways, and the serial at the far end of every cable."""
    overlay = load_overlay("lora_f_u280")
    with Cluster.open(devices=pair.devices, overlay=overlay) as cluster:
        cluster.links_up(ring(4))
        assert len({info.serial for info in cluster.infos}) == 4
        for board in range(4):
            for port in range(abi.PORTS):
                assert cluster.link_status(board, port).status == abi.LINK_HEALTHY


def test_the_demo_model_writes_the_same(pair: Pair) -> None:
    params = SamplingParams(max_tokens=12, logprobs=3)
    sampled = SamplingParams(max_tokens=12, temperature=0.8, seed=7)
    requests = [(prompt, one) for prompt in PROMPTS for one in (params, sampled)]

    def results(**boards: object) -> list[object]:
        with Engine(**boards) as engine:  # type: ignore[arg-type]
            return [
                (found.outputs[0].token_ids, found.outputs[0].logprobs)
                for found in (engine.generate(prompt, one) for prompt, one in requests)
            ]

    assert results(devices=pair.devices) == results(boards=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_adapters_and_trees_give_the_same(pair: Pair, folders: Folders, seed: int) -> None:
    """Greedy and sampled, two adapters, a tree of candidates in each verification."""
    trees = {"speculation": speculation(folders, "lookup")}
    with opened(folders, 4, **trees) as engine:
        want = texts(engine, mixed(seed))
    with opened(folders, None, devices=pair.devices, **trees) as engine:
        assert texts(engine, mixed(seed)) == want
        assert not engine.recoveries


@pytest.mark.slow
def test_a_lost_host_is_a_loss_of_its_boards(folders: Folders, tmp_path: Path) -> None:
    """Its daemon is killed: the others go on with the same tokens, on as many boards as have
    cables."""
    with opened(folders, 1) as engine:
        want = texts(engine, mixed(1))
    with Pair(tmp_path) as pair:
        with opened(folders, None, devices=pair.devices) as engine:
            assert texts(engine, mixed(1)) == want
            pair.theirs.process.send_signal(signal.SIGKILL)
            pair.theirs.process.wait()
            assert texts(engine, mixed(1)) == want
            assert engine.cluster.size == 2
        wait_until_free(pair)


CUTS = (("sent", 1), ("sent", 700), ("answered", 1), ("answered", 300))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["taken", "refused"])
def test_a_connection_cut_in_decode(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Between the program and one of two hosts, in the middle of a message: it is connected again
    and all boards go on, or the other host's boards go on; with the same tokens."""
    pytest.importorskip("cryptography")
    keys = make_keys(tmp_path / "keys")
    monkeypatch.setenv("LORA_BOARDD_KEYS", str(keys / "client"))
    with opened(folders, 1) as engine:
        want = texts(engine, mixed(1))
    with Pair(tmp_path, keys) as pair, CutProxy(port_of(pair.theirs)) as proxy:
        cut = [f"tcp:{HOST}:{proxy.port}/{uri.partition('/')[2]}" for uri in pair.theirs.uris]
        with opened(folders, None, devices=(*pair.ours.uris, *cut)) as engine:
            for number, (direction, count) in enumerate(CUTS[:1] if then == "refused" else CUTS, 1):
                one = partial(proxy.cut, direction, count, then)
                with Disturbed(engine, {4 + number: one}):
                    assert texts(engine, mixed(1)) == want
                assert proxy.cuts == number and len(engine.recoveries) >= number
                assert engine.cluster.size == (2 if then == "refused" else 4)
        wait_until_free(pair)


def port_of(daemon: DaemonProcess) -> int:
    return int(daemon.addresses[0].rpartition(":")[2])


def wait_until_free(pair: Pair) -> None:
    """No board of ours is reserved."""
    end = time.monotonic() + 20
    while any(board.holder for board in daemon_status(pair.ours.addresses[0])):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_daemon_that_is_started_again_is_waited_for(folders: Folders, tmp_path: Path) -> None:
    """In the middle of requests: all four boards go on, with the same tokens."""
    with opened(folders, 1) as engine:
        want = texts(engine, mixed(1))
    ended = threading.Event()
    with Pair(tmp_path) as pair:

        def start_again() -> None:
            ended.wait()
            time.sleep(1.0)  # a recovery that does not wait has left its boards out
            place = ("--socket", str(tmp_path / "theirs.sock"), "--cable", "0.1-1.0")
            pair.theirs = DaemonProcess(*place)

        def end() -> None:
            pair.theirs.process.kill()
            pair.theirs.process.wait()
            ended.set()

        starter = threading.Thread(target=start_again)
        starter.start()
        try:
            with opened(folders, None, devices=pair.devices, daemon_wait=120.0) as engine:
                with Disturbed(engine, {3: end}):
                    assert texts(engine, mixed(1)) == want
                assert engine.cluster.size == 4
                assert engine.recoveries and not any(one.left_out for one in engine.recoveries)
                assert not engine.weight_notices.count  # its weights were lost, not damaged
        finally:
            ended.set()
            starter.join()
