"""Boards of two daemons, each a process of its own, form one cluster: the bytes of as many local
boards."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.boardd.status import daemon_status
from lora_host.cluster import Cluster
from lora_host.cluster_file import ring
from lora_host.overlay import load_overlay
from lora_sdk import Engine, SamplingParams
from tests.daemons import DaemonProcess
from tests.recovery_rig import Folders, mixed, opened, speculation, texts, write_folders

PROMPTS = ("import os\n", "def parse(")
SEEDS = (3, pytest.param(8, marks=pytest.mark.slow))


class Pair:
    """2 + 2 boards in a ring: each daemon has one cable of its own, two lead to the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.theirs = self.start_theirs()
        far = f"unix:{folder / 'theirs.sock'}/emu:u280"
        cables = ("0.1-1.0", f"1.1={far}/0.0", f"0.0={far}/1.1")
        options = [word for cable in cables for word in ("--cable", cable)]
        self.ours = DaemonProcess("--socket", str(folder / "ours.sock"), *options)
        self.devices = (*self.ours.uris, *self.theirs.uris)

    def start_theirs(self) -> DaemonProcess:
        return DaemonProcess("--socket", str(self.folder / "theirs.sock"), "--cable", "0.1-1.0")

    def close(self) -> None:
        for daemon in (self.ours, self.theirs):
            daemon.__exit__()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("daemons"))
    yield made
    made.close()


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
    pair = Pair(tmp_path)
    try:
        with opened(folders, None, devices=pair.devices) as engine:
            assert texts(engine, mixed(1)) == want
            pair.theirs.process.send_signal(signal.SIGKILL)
            pair.theirs.process.wait()
            assert texts(engine, mixed(1)) == want
            assert engine.cluster.size == 2
        end = time.monotonic() + 20
        while any(board.holder for board in daemon_status(pair.ours.addresses[0])):
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        pair.close()
