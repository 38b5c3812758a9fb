"""Which file `sim:` boards load, how they refuse others, and what they take of a board's data."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lora_host import abi, sim
from lora_host.boardd.settings import Settings, check_settings
from lora_host.cluster import Cluster
from lora_host.device_uri import check_uri, is_emulated, is_model, is_simulated
from lora_host.errors import OverlayError, RequestError
from lora_host.overlay import COLUMN, load_overlay
from lora_host.selection import check_spares, select
from lora_sdk.opening.options import EngineOptions
from tests.commands import lora_run

OVERLAY = load_overlay("lora_f_u280")
FACTS = Path(__file__).resolve().parents[2] / "sdk/lora_lab/timing/data/control.yaml"


def refusal(path: Path) -> str:
    with pytest.raises(RequestError) as caught:
        sim.load(path)
    text = str(caught.value)
    assert str(path) in text and "make sim-build" in text and "\n" not in text
    return text


def test_a_missing_library_names_what_builds_it(tmp_path: Path) -> None:
    assert "Verilator" in refusal(tmp_path / sim.LIBRARY)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    assert "not a plain file" in refusal(tmp_path)
    text = tmp_path / "text.so"
    text.write_text("not a library")
    assert "cannot be loaded" in refusal(text)
    link = tmp_path / "link.so"
    link.symlink_to(text)
    assert "not a plain file" in refusal(link)
    pipe = tmp_path / "pipe.so"
    os.mkfifo(pipe)
    assert "not a plain file" in refusal(pipe)


def test_another_library_is_refused() -> None:
    """A real library without the interface."""
    import _ctypes

    assert "lora_sim_version" in refusal(Path(_ctypes.__file__))


def test_another_version_is_refused(tmp_path: Path) -> None:
    source, made = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text(f"unsigned lora_sim_version(void) {{ return {sim.VERSION + 1}; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    assert f"version {sim.VERSION + 1}, {sim.VERSION} expected" in refusal(made)


def test_the_library_is_the_packages_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no current folder decides."""
    asked: list[Path] = []
    monkeypatch.setattr(sim, "load", lambda path, *_: asked.append(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sim.library.cache_clear()
    sim.library()
    sim.library(4)
    sim.library.cache_clear()
    package = Path(sim.__file__).resolve().parent
    assert asked == [package / sim.LIBRARY, package / "_lora_sim_4.so"]


def test_columns_ask_for_cards_of_so_many_channels(tmp_path: Path) -> None:
    """A library of its own, whose absence says how to build it; other banks have none."""
    with pytest.raises(RequestError, match="'make -C csrc/sim CHANNELS=4' "):
        sim.load(tmp_path / "_lora_sim_4.so", 4)
    for banks, said in ((range(1, 5), "banks 1..4"), (range(3), "banks 0..2")):
        placed = replace(OVERLAY, merge=COLUMN, weight_banks=banks)
        with pytest.raises(OverlayError, match=f"{said} found; simulated cards have 2, 4, 8, 16"):
            sim.Cards(placed, 1)


def test_help_names_the_uri() -> None:
    done = lora_run("--help")
    assert done.returncode == 0 and b"sim:u280 (simulated cards)" in b" ".join(done.stdout.split())


def test_a_uri_of_simulated_cards() -> None:
    assert check_uri("sim:u280") == ("sim", "u280") and check_uri("sim:v80") == ("sim", "v80")
    assert is_simulated("sim:u280") and is_emulated("sim:u280") and is_model("sim:u280")
    assert not is_simulated("emu:u280")
    with pytest.raises(RequestError, match="did you mean 'sim:u280'"):
        check_uri("sim:u28")
    with pytest.raises(RequestError, match="daemons serve no simulated cards"):
        check_uri("tcp:lab2:7410/sim:u280")


def test_a_daemon_refuses_them(tmp_path: Path) -> None:
    """It would serve emulated boards in their places."""
    with pytest.raises(RequestError, match="daemons serve no simulated cards; name emu:KIND"):
        check_settings(Settings(("emu:u280", "sim:u280"), socket=tmp_path / "socket"))


def test_one_uri_stands_for_all_boards() -> None:
    found = select(4, ["sim:u280"], None, OVERLAY)
    assert [entry.uri for entry in found.boards] == ["sim:u280"] * 4
    assert [entry.serial for entry in found.boards] == [1, 2, 3, 4] and len(found.cables) == 4


def test_a_spare_is_of_the_same_kind() -> None:
    check_spares(["sim:u280"], ["sim:u280"], None, "u280")
    with pytest.raises(RequestError, match="expected a simulated u280"):
        check_spares(["emu:u280"], ["sim:u280"], None, "u280")
    with pytest.raises(RequestError, match="expected an emulated u280"):
        check_spares(["sim:u280"], ["emu:u280"], None, "u280")


@pytest.mark.parametrize("options", [{"kernels": "numpy"}, {"kernels": "rtl"}, {"trace": True}])
def test_options_without_a_meaning_are_refused(options: dict[str, object]) -> None:
    """Before a library is looked for, in the engine's options too."""
    with pytest.raises(RequestError, match="simulated cards"):
        Cluster.open(1, ["sim:u280"], overlay=OVERLAY, **options)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="simulated cards"):
        EngineOptions(devices=["sim:u280"], **options)  # type: ignore[arg-type]


def test_times_are_the_boards_data() -> None:
    config = sim._config(OVERLAY, 2, sim.Bench())
    assert yaml.safe_load(FACTS.read_text())["core"]["window_ns"]["value"] == sim.MEMORY_NS
    assert (config.latency, config.link_latency, config.slice) == (24, 60, 60)
    assert config.beat_spacing == 2 << 16  # 32 bytes a cycle
    assert set(config.line_spacing) == {1 << 16}  # HBM's 14.4 GB/s are more than a line a cycle
    fast = sim._config(load_overlay("lora_q_u280"), 1, sim.Bench())
    assert fast.line_spacing[0] == round(64 * 250e6 / 14.375e9 * 65536) and fast.slice == sim.SLICE


@pytest.mark.parametrize("kind", [abi.FAULT_UNIT_STUCK, abi.FAULT_MISFILE | abi.FAULT_UNTIL_RESET])
def test_faults_of_emulated_units_are_refused(kind: int) -> None:
    with pytest.raises(RequestError, match="emulated units"):
        sim.check_fault(kind)
    sim.check_fault(abi.FAULT_LINK_FLIP)
