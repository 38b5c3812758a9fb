"""The lab's commands on emulated boards, and through the mock server vrtd."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lora_host import abi
from lora_host.board_types import opened_type
from lora_host.cluster import Cluster
from lora_host.cluster_file import BoardEntry, load_cluster
from lora_host.errors import RequestError
from lora_host.lab.link_words import status_words
from lora_host.overlay import load_overlay
from lora_host.records import LinkFound
from lora_host.vrtd_mock.process import MockServer
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path / "locks"))
    monkeypatch.setenv("LORA_VRTD_SOCKET", str(tmp_path / "none.sock"))


@pytest.fixture
def mock_server(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[MockServer]:
    with MockServer(2, getattr(request, "param", ())) as running:
        monkeypatch.setenv("LORA_VRTD_SOCKET", str(running.socket))
        yield running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(lora, arguments)


def devices(mock_server: MockServer) -> list[str]:
    return [word for uri in mock_server.uris for word in ("--device", uri)]


def test_list_shows_boards_overlays_links_and_holders(mock_server: MockServer) -> None:
    views = json.loads(run("list", "--json").stdout)
    assert [v["uri"] for v in views] == list(mock_server.uris)
    assert views[0]["overlay"] == "" and views[0]["holder"] is None
    assert views[0]["sensors"]["hbm_temp"] == "41.5 C"
    with Cluster.open(devices=mock_server.uris, overlay=load_overlay("lora_f_v80")) as cluster:
        cluster.links_up(cluster.cables)
        views = json.loads(run("list", "--json").stdout)
        assert "lora_f_v80" in views[1]["overlay"] and views[1]["abi"] == abi.ABI_NUMBER
        assert views[1]["serial"] == 0x5101 and views[1]["holder"] is not None
        healthy = [[port["healthy"] for port in view["links"]] for view in views]
        assert healthy == [[False, True], [True, False]]
        assert "held by" in run("list").stdout
        watched = run("list", "--watch", "--interval", "0.1", "--count", "2")
    assert watched.exit_code == 0, watched.output
    lines = [line for line in watched.stdout.splitlines() if line.startswith("slash:")]
    assert len(lines) == 4 and all("41.5 C" in line and "1 of 2 up" in line for line in lines)
    assert all(f"{os.getpid()} (" in line for line in lines)
    assert "\x1b" not in watched.stdout  # no terminal
    times_down = dict(views[0]["links"][0]["errors"])["times down"]
    assert ("0: times down" in lines[0]) == (times_down > 0)


def test_watch_ends_after_a_count_and_is_json_lines() -> None:
    assert isinstance(run("list", "--count", "2").exception, RequestError)
    found = json.loads(run("list", "--watch", "--count", "1", "--json").stdout)
    assert isinstance(found, list)


def test_links_of_emulated_boards() -> None:
    found = run("links", "--boards", "4", "--test")
    assert found.exit_code == 0, found.output
    assert found.stdout.count("4 cables expected, 4 found, no problem") == 2
    assert found.stdout.startswith("4 emulated u280 boards: no device or cluster file names")
    pair = run("links", "--device", "emu:u280", "--device", "emu:u280", "--test").stdout
    assert pair.startswith("2 emulated boards\n")
    assert pair.count("1 cable expected, 1 found, no problem") == 2
    assert "board 0 port 1: up, status 0x11ff (healthy), configuration 0x83 (framing, 32 B" in pair
    assert "board 0 port 0: down, status 0x010f (lanes down: 0-3; no channel)" in pair
    file = yaml.safe_load(run("links", "--boards", "2", "--discover").stdout)
    assert file["cables"] == [{"board_a": 0, "port_a": 1, "board_b": 1, "port_b": 0}]


def test_boards_that_are_emulated_elsewhere_are_called_so(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the mock server, a daemon, XRT's emulation; a card's container has a bitstream."""
    overlay = load_overlay("lora_f_u280")
    assert opened_type("unix:/a.sock/emu:u280/0", overlay) == "emulated"
    assert opened_type("xrt:0", overlay) == "emulated"  # it took a container without a bitstream
    monkeypatch.setattr("lora_host.board_types.EMULATION_MARK", b"none of these bytes")
    assert opened_type("xrt:0", overlay) == opened_type("xrt:0", None) == "real"
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    assert opened_type("xrt:0", None) == "emulated"
    monkeypatch.undo()
    monkeypatch.setenv("LORA_VRTD_SOCKET", str(mock_server.socket))
    found = run("validate", *devices(mock_server), "--memory")
    assert found.stdout.endswith("2 emulated boards: sound\n")


def test_boards_without_a_cable_are_no_cluster_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy computer misses is not written as if there were nothing."""
    real = Cluster.links_discover

    def missed(cluster: Cluster) -> list[list[LinkFound]]:
        return [[replace(port, status=0x10F) for port in ports] for ports in real(cluster)]

    monkeypatch.setattr(Cluster, "links_discover", missed)
    found = run("links", "--device", "emu:u280", "--device", "emu:u280", "--discover")
    assert found.exit_code == 1 and "no cable found between 2 boards" in found.stderr
    assert run("links", "--boards", "1", "--discover").exit_code == 0


def test_a_board_is_called_as_it_was_named() -> None:
    assert run("program", "--device", "emu:v80").stdout.startswith("emu:v80: lora_f_v80, ABI ")


def test_a_board_alone_has_no_links_to_test() -> None:
    found = run("validate", "--device", "emu:u280")
    assert "links: not tested: no cable" in found.stdout
    assert found.stdout.endswith("1 emulated board: sound\n")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (abi.LINK_HEALTHY, "healthy"),
        (0x010F, "lanes down: 0-3; no channel"),
        (0x0200, "no power at the transceivers of lanes 0-3; lanes down: 0-3; PLL not locked; "
                 "MMCM not locked; no channel"),
        (0x1DBF, "lanes down: 2; hard error; soft error"),
        (0x31FF, "unknown bits 0x2000"),
    ],
)  # fmt: skip
def test_a_status_is_told_in_words(status: int, words: str) -> None:
    assert status_words(status) == words


@pytest.mark.slow
@pytest.mark.parametrize("mock_server", [("--cables", "0.1-1.1")], indirect=True)
def test_links_finds_swapped_ports_and_writes_the_real_cabling(
    mock_server: MockServer, tmp_path: Path
) -> None:
    found = run("links", *devices(mock_server), "--discover")
    assert found.exit_code == 0, found.output
    file = tmp_path / "cluster.yaml"
    file.write_text(found.stdout)
    cable = {"board_a": 0, "port_a": 1, "board_b": 1, "port_b": 1}
    assert yaml.safe_load(found.stdout)["cables"] == [cable]
    against_ring = run("links", *devices(mock_server), "--test")
    assert against_ring.exit_code == 1 and "ports of a board are swapped" in against_ring.stdout
    assert load_cluster(file).boards[1] == BoardEntry(mock_server.uris[1], 0x5101)


@pytest.mark.slow
def test_validate_tells_sound_boards_from_a_silent_link_fault(mock_server: MockServer) -> None:
    sound = run("validate", *devices(mock_server))
    assert sound.exit_code == 0, sound.output
    assert "66 banks, 66 MiB: right" in sound.stdout and "2 emulated boards: sound" in sound.stdout
    mock_server.command(f"fault 0 {abi.FAULT_LINK_GARBLE} 1 0 0")
    bad = run("validate", *devices(mock_server))
    assert (
        bad.exit_code == 1
        and "fault: link board 1 (" in bad.stdout
        and "port 0 - board 0 (" in bad.stdout
    )


def test_validate_compares_known_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from lora_sdk.cli import known_answers

    real = known_answers.logits

    def answered(*tell: Any, **options: Any) -> list[bytes]:
        return real(*tell, **options) if options["boards"] > 1 else [b"another"] * 4

    monkeypatch.setattr(known_answers, "logits", answered)
    found = run("validate", "--boards", "2")
    assert found.exit_code == 1 and "logits of step 0 differ" in found.stdout


def test_simulated_cards_get_a_small_model() -> None:
    from lora_sdk.cli.known_answers import STEPS, logits, sample_for

    seen: list[int] = []
    with sample_for(simulated=True) as sample:
        found = logits(seen.append, boards=2, **sample.options)
        assert found == logits(boards=1, **sample.options) and len(set(found)) == STEPS
        assert Path(sample.options["model"]).is_dir() and seen == [1, 2, 3, 4]
    assert not Path(sample.options["model"]).exists()


def test_the_memory_test_finds_wrong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from lora_host.lab.memory import check_memory

    with Cluster.open(boards=1, overlay=load_overlay("lora_f_u280")) as cluster:
        real = cluster.write

        def spoilt(board: int, bank: int, offset: int, data: bytearray) -> None:
            if bank == 7:
                data[100] ^= 1
            real(board, bank, offset, data)

        monkeypatch.setattr(cluster, "write", spoilt)
        faults = {r.bank: r.fault for r in check_memory(cluster, 4096) if r.fault}
    assert (
        list(faults) == ["HBM[7]"] and "1 wrong bytes, the first at offset 0x64" in faults["HBM[7]"]
    )


@pytest.mark.slow
def test_program_and_reset_check_that_they_worked(
    mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = run("program", *devices(mock_server))
    assert loaded.exit_code == 0 and f"lora_f_v80, ABI {abi.ABI_NUMBER}" in loaded.stdout
    again = run("reset", *devices(mock_server))
    assert again.exit_code == 0 and "back after" in again.stdout
    mock_server.command("lose 1 1")
    assert run_command(lora, "lora", ["reset", *devices(mock_server)]) == 1
    assert "reports the design as written, but the board shows" in capsys.readouterr().err
    assert run_command(lora, "lora", ["reset", "--device", "emu:v80"]) == 2


def test_doctor_reports_a_missing_daemon_only_where_a_board_is(mock_server: MockServer) -> None:
    found = json.loads(run("doctor", "--json").stdout)
    assert {"vrtd": "ok"}.items() <= {f["thing"]: f["state"] for f in found}.items()
