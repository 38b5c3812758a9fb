"""GPUs that prefill and boards that decode, in simulated time."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_cluster.dispatch.policy import Next, Policy
from lora_host.errors import RequestError
from lora_lab.cli.model import model
from lora_lab.fleet.capacity import fleet_capacity, splits
from lora_lab.fleet.description import FleetModel, Load, read_fleet
from lora_lab.fleet.report import report, text
from lora_lab.fleet.service import exposed_transfer
from lora_lab.fleet.simulation import Simulation
from lora_lab.timing.gpus import gpu

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"


@pytest.fixture(scope="module")
def fleet() -> FleetModel:
    found = read_fleet(EXAMPLE)
    return replace(found, load=replace(found.load, requests=300))


def of(fleet: FleetModel, workers: int, clusters: int, **load: object) -> FleetModel:
    return replace(
        fleet,
        workers=fleet.workers[:1] * workers,
        clusters=fleet.clusters[:1] * clusters,
        load=replace(fleet.load, **load),  # type: ignore[arg-type]
    )


def test_one_gpu_and_seven_boards_beside_eight_of_a_kind(fleet: FleetModel) -> None:
    """At [1536, 512]; the paper prints averages over other lengths, 1.28 and 1.23."""
    mixed, gpus, boards = (report(of(fleet, *cards)) for cards in ((1, 7), (8, 0), (0, 8)))
    rate = mixed["tokens_per_second"]
    assert rate / gpus["tokens_per_second"] == pytest.approx(1.25, rel=0.02)
    assert rate / boards["tokens_per_second"] == pytest.approx(1.46, rel=0.02)
    for one in (mixed, gpus, boards):
        assert one["tokens_per_second"] == pytest.approx(
            one["capacity_tokens_per_second"], rel=0.02
        )
    best = max(mixed["splits"], key=lambda one: one["tokens_per_second"])
    assert (best["workers"], best["clusters"]) == (1, 7)


def test_requests_are_served_in_their_order_and_none_is_lost(fleet: FleetModel) -> None:
    outcome = Simulation(of(fleet, 2, 3, per_second=0.5, requests=200)).run()
    assert sorted(one.number for one in outcome.requests) == list(range(200))
    by_arrival = sorted(outcome.requests, key=lambda one: one.number)
    begun = [one.prefilled for one in by_arrival]
    assert all(after >= before - 1e-9 for before, after in pairwise(begun))
    assert sum(tokens for _, _, tokens in outcome.emissions) == 200 * fleet.load.response
    for one in outcome.requests:
        assert one.arrived < one.prefilled < one.finished


def test_at_a_low_rate_a_request_takes_its_own_time(fleet: FleetModel) -> None:
    alone = of(fleet, 1, 2, per_second=1e-4, requests=20)
    found = report(alone)
    worker, cluster = alone.workers[0], alone.clusters[0]
    assert found["first_token"] == pytest.approx(worker.prefill(1536))
    assert found["next_token"] == pytest.approx(cluster.decode(1536, 512) / 512, rel=1e-3)
    assert found["share_decoded_by_workers"] == 0
    prompt = worker.prefill(1536) * 256.6
    assert found["joules_per_token"] == pytest.approx(
        (prompt + 46 * cluster.decode(1536, 512)) / 512
    )


def test_a_worker_decodes_when_all_clusters_are_busy(fleet: FleetModel) -> None:
    busy = report(of(fleet, 1, 1, per_second=0.12, requests=200))
    assert 0.05 < busy["share_decoded_by_workers"] < 0.6
    assert busy["first_token_p99"] < 1.0  # prompts come before a worker's own decoding


def test_memory_bounds_what_a_worker_holds(fleet: FleetModel) -> None:
    held: list[int] = []

    class Noted(Policy):
        def worker(self, waiting: int, held_now: int, room: int) -> Next:
            held.append(held_now)
            assert room >= 0
            return super().worker(waiting, held_now, room)

    Simulation(of(fleet, 1, 1, requests=100), Noted()).run()
    room = fleet.workers[0].sequences(2048)
    assert 50 < room < 75  # 80 GiB less 13 GB of weights, 1.07 GB each
    assert max(held) in (room - 1, room)


def test_a_policy_decides(fleet: FleetModel) -> None:
    class OnlyPrompts(Policy):
        """The worker leaves all new tokens to the boards."""

        def worker(self, waiting: int, held: int, room: int) -> Next:
            return "prefill" if waiting and room > 0 else "nothing"

    outcome = Simulation(of(fleet, 1, 2, requests=40), OnlyPrompts()).run()
    assert len(outcome.requests) == 40
    assert {one.decoded_by for one in outcome.requests} == {"flightllm-merged"}


def test_a_hand_over_shows_only_where_it_outlasts_the_computation() -> None:
    assert exposed_transfer(0.32, 32, 0.002) == pytest.approx(0.002)  # the last layer's
    assert exposed_transfer(0.32, 32, 0.02) == pytest.approx(32 * 0.02 - 31 * 0.01)
    assert exposed_transfer(0.0, 32, 0.01) == pytest.approx(0.32)


def test_gpus_are_as_quoted_and_scale(fleet: FleetModel) -> None:
    config = fleet.config
    for name, prefill, token in (("a100", 175.85, 24.26), ("v100s", 398.80, 29.52)):
        one = gpu(name)
        assert 1e3 * one.prefill_seconds(config, 1536) == pytest.approx(prefill)
        assert 1e3 * one.token_seconds(config, 1792) == pytest.approx(token)
        assert one.prefill_seconds(config, 3072) > 2 * one.prefill_seconds(config, 1536)
        assert one.token_seconds(config, 128) < one.token_seconds(config, 1792)
    with pytest.raises(RequestError, match="GPU 'a10' is not known; did you mean 'a100'"):
        gpu("a10")


def test_splits_have_as_many_cards(fleet: FleetModel) -> None:
    found = splits(fleet)
    assert [(one.workers, one.clusters) for one in found] == [(n, 8 - n) for n in range(9)]
    assert found[1].tokens_per_second == pytest.approx(fleet_capacity(fleet))
    assert found[1].dollars == 17000 + 7 * 8000
    assert splits(of(fleet, 0, 8)) == []


def test_the_command_prints_it(tmp_path: Path) -> None:
    found = json.loads(CliRunner().invoke(model, ["--fleet", str(EXAMPLE), "--json"]).output)
    assert found["label"] == "modelled" and found["workers"] == ["a100"]
    assert found["first_token"] is None  # requests always wait
    file = tmp_path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text().replace("# per_second", "per_second"))
    said = CliRunner().invoke(model, ["--fleet", str(file)]).output
    assert "first token" in said and "hand-over" in said and "left out: idle power" in said


def test_a_fleet_of_our_own_designs_says_that_none_exists_and_its_load(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    text = EXAMPLE.read_text().replace("flightllm-merged, board: u280, boards: 1, count: 7",
                                       "own-u280, board: u280, boards: 4, count: 2")  # fmt: skip
    file.write_text(text.replace("# per_second", "per_second").replace("500", "50"))
    first, *rest = CliRunner().invoke(model, ["--fleet", str(file)]).output.splitlines()
    assert "2 x own-u280 on 4 x u280" in first
    assert first.endswith("50 requests of 1536 + 512 tokens, 0.5 a second")
    assert any("own-u280: no hardware of this design exists" in line for line in rest)
    assert any(line.startswith("  note: cards' time shared out: what ") for line in rest)
    always = CliRunner().invoke(model, ["--fleet", str(EXAMPLE)]).output.splitlines()
    assert always[0].endswith("one always waiting") and not any("no hardware" in a for a in always)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 7", "count: 0", "clusters.0.count: found 0"),
        ("gpu: a100", "gpu: h100", "GPU 'h100' is not known"),
        ("flightllm-merged", "flightlm", "did you mean 'flightllm'"),
        ("flightllm-merged", "lora_w4a8_u280", "is an emulated overlay; expected a design"),
        (
            "# per_second: 0.5",
            "per_second: 1e-15",
            "load.per_second: found 1e-15, expected minimum",
        ),
        ("# per_second: 0.5", "per_second: 1.0e-300", "expected minimum 1e-06"),
        (
            "per_second: 12",
            "per_second: 1.0e-320",
            "transfer.gigabytes_per_second: found .*minimum",
        ),
        ("per_second: 12", "per_second: 1.0e-100", "expected minimum 1e-06"),
        ("count: 7", "dollars: 1.0e-320", "clusters.0.dollars: found .*minimum 0.01"),
        ("prompt: 1536", "prompt: 4000", "416 more than the model's context of 4096"),
        ("load:", "loads:", "unknown field 'loads'"),
        ("model: llama2-7b", "model: llama2-70b", "hold no sequence of 2048 positions"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text().replace(old, new))
    with pytest.raises(RequestError, match=message):
        report(read_fleet(file))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("rate", ["1.0e-6", "1000000"])
def test_rates_at_their_limits_have_a_report(tmp_path: Path, rate: str, workers: int) -> None:
    file = tmp_path / "fleet.yaml"
    content = EXAMPLE.read_text().replace("model: llama2-7b", "model: gpt2-345m")
    content = content.replace("prompt: 1536", "prompt: 8").replace("response: 512", "response: 8")
    content = content.replace("# per_second: 0.5", f"per_second: {rate}")
    content = content.replace("per_second: 12", f"per_second: {rate}")
    if not workers:
        content = content.replace("workers:", "").replace("  - {gpu: a100, count: 1}", "")
    file.write_text(content.replace("requests: 500", "requests: 2000"))
    found = report(read_fleet(file))
    assert found["tokens_per_second"] > 0 and "modelled" in text(found)


def test_a_fleet_of_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("model: llama2-7b\nload: {prompt: 8, response: 8}\n")
    with pytest.raises(RequestError, match="no workers and no clusters"):
        read_fleet(file)


def test_a_load_is_what_it_says() -> None:
    assert Load(8, 4).requests == 500 and Load(8, 4).per_second is None
