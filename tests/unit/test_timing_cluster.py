"""Splits of hosts of boards into replicas: places, loads, the network's share, the best ones.
Stages are in test_stages.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.cli.model import model as model_command
from lora_lab.timing.cluster import Hosts, Load, Network, Split, best, splits
from lora_lab.timing.model import token_time
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import find_config

SMALL = find_config("llama2-7b")


def of(hosts: int, boards: int, load: Load | None = None, **more: object) -> dict[int, Split]:
    machines = Hosts("own-u280", None, hosts, boards, **more)  # type: ignore[arg-type]
    found, _ = splits(SMALL, machines, load or Load(256))
    return {split.boards: split for split in found if split.stages == 1}


def test_replicas_fill_the_hosts() -> None:
    placed = {n: (s.hosts, s.replicas) for n, s in of(4, 8).items()}
    assert placed == {1: (1, 32), 2: (1, 16), 4: (1, 8), 8: (1, 4), 16: (2, 2), 32: (4, 1)}
    odd = {n: (s.hosts, s.replicas) for n, s in of(5, 6).items()}  # whole hosts, the rest idle
    assert odd == {1: (1, 30), 2: (1, 15), 4: (1, 5), 8: (2, 2), 16: (3, 1)}


def test_a_replica_on_one_host_is_timed_as_boards_are() -> None:
    for boards, split in of(2, 4).items():
        if boards <= 4:
            alone = token_time(make_target("own-u280", None, SMALL, boards), "", 256)
            assert split.lone_ms == pytest.approx(alone.latency_ms) and split.network_ms == 0
            assert split.hops == boards // 2


def test_other_hosts_are_reached_over_the_network() -> None:
    """By a round trip and bytes a step; a lone token's share is that of a run of 64."""
    slow = Network(round_trip_s=1e-3, bytes_per_second=1e9)
    load = Load(256, requests=1)
    one, two = of(1, 16, load)[16], of(2, 8, load, network=slow)[16]
    block = sum(abi.dtype(name).itemsize for name in ("step", "row", "kv_op"))
    added = 1e-3 + 8 * (block + abi.RECORDS_BYTES) / 1e9
    assert two.lone_ms - one.lone_ms == pytest.approx(1e3 * added / abi.MAX_GENERATE)
    busy = Load(256, requests=8)
    one, two = of(1, 16, busy)[16], of(2, 8, busy, network=slow)[16]
    assert two.loaded_ms - one.loaded_ms > 1.0


def test_requests_are_spread_over_replicas() -> None:
    for boards, split in of(4, 8, Load(256, requests=40)).items():
        assert split.rows == -(-40 // split.replicas), boards
        assert split.tokens_per_second == pytest.approx(40 / split.loaded_ms * 1e3)
        busy = boards * split.replicas / split.tokens_per_second
        assert split.board_ms_per_token == pytest.approx(1e3 * busy)


def test_memory_bounds_the_sequences() -> None:
    """LLaMA2-7B in W4A8 leaves a U280 4.6 GB: 8 KiB a position and layer."""
    near, far = of(1, 8, Load(1024)), of(1, 8, Load(4096))
    assert near[1].rows // 4 == far[1].rows > 0
    assert near[1].rows < near[2].rows < near[8].rows == abi.MAX_ROWS
    found, refused = splits(find_config("llama2-70b"), Hosts("own-u280", None, 2, 8), Load(256))
    assert min(split.boards for split in found) == 8
    assert refused[0].startswith("1 board a replica in 1 stage: weights and one sequence do not")


def test_the_best_are_those_of_the_table() -> None:
    found = tuple(of(2, 8).values())
    named = {goal: one["boards"] for goal, one in best(found).items()}
    assert min(found, key=lambda s: s.lone_ms).boards == named["latency"]
    assert len(set(named.values())) > 1
    dear = {s.boards: s.dollars_per_million_tokens for s in found}
    assert min(dear, key=lambda boards: dear[boards] or 0.0) == named["cost"]
    assert max(found, key=lambda s: s.tokens_per_second).boards == named["throughput"]


@pytest.mark.parametrize(
    ("machines", "load", "message"),
    [
        (Hosts("own-u280", None, 0, 8), Load(128), "0 hosts: expected 1 to 64"),
        (Hosts("own-u280", None, 1, 65), Load(128), "boards a host 65: expected 1 to 64"),
        (Hosts("own-u280", None, 1, 8), Load(128, 0), "0 requests at once: expected at least 1"),
        (Hosts("own-u280", None, 1, 8), Load(0), "context 0: expected at least 1"),
        (Hosts("flightllm", None, 1, 8), Load(128), "splits are timed for array designs"),
    ],
)
def test_wrong_numbers_are_refused(machines: Hosts, load: Load, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        splits(SMALL, machines, load)


def test_a_model_that_no_split_holds_is_refused() -> None:
    with pytest.raises(RequestError, match="no split of 1 hosts of 2 boards holds the model"):
        splits(find_config("bloom-176b"), Hosts("own-u280", None, 1, 2), Load(128))


WORDS = ["--design", "own-u280", "--model", "gpt2-345m", "--boards", "4"]


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = [*WORDS, "--hosts", "2", "--context", "128"]
    shown = CliRunner().invoke(model_command, [*words, "--plot", str(tmp_path / "cluster.svg")])
    assert shown.exit_code == 0, shown.output
    assert (
        "lowest latency of a lone token: " in shown.output
        and "note: a replica over" in shown.output
    )
    assert (tmp_path / "cluster.svg").read_text().startswith("<?xml")
    found = json.loads(CliRunner().invoke(model_command, [*words, "--json"]).output)
    boards = [s["boards"] for s in found["splits"] if s["stages"] == 1]
    assert found["label"] == "modelled" and boards == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "2", "--in", "3", "--out", "2"], "--hosts goes with --context"),
        (["--hosts", "2", "--context", "128", "--beams", "2"], "--hosts goes with --context"),
        (["--requests", "2", "--context", "128"], "need --hosts"),
    ],
)
def test_options_that_conflict_are_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(model_command, [*WORDS, *words])
    assert isinstance(result.exception, RequestError) and message in str(result.exception)
