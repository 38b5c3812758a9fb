"""Progress on a terminal: whole steps, and a count for every command that takes long."""

from __future__ import annotations

import io
import sys
import time
from typing import Any, cast

import pytest

from lora_host.lab.bare import BareBank, BareBoards
from lora_lab.timing.dse import Exploration
from lora_sdk.cli.bare import validate_bare
from lora_sdk.cli.main import lora
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.model.shapes import find_config


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_are_whole_numbers_and_bytes_have_units(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for unit, total in (("layer", 25), ("B", 25 << 20)):
        with ProgressBar("quantizing", unit=unit) as progress:
            progress(total // 25, total)
            time.sleep(0.15)  # a bar is drawn ten times a second at most
            progress(4 * total // 25, total)
    assert "| 4/25 [" in terminal.getvalue() and "4.00/25.0" not in terminal.getvalue()
    assert "4.00M/25.0M" in terminal.getvalue()


class InMemory:
    """Boards with a foreign container, as `BareBoards`, whose banks are bytes here."""

    banks = tuple(BareBank(f"HBM[{index}]", index, 4096) for index in range(3))

    def __init__(self) -> None:
        self.boards = [self]
        self._buffers: list[bytearray] = []

    def buffer(self, memory: int, bytes: int) -> int:
        self._buffers.append(bytearray(bytes))
        return len(self._buffers) - 1

    def write(self, buffer: int, offset: int, data: Any) -> None:
        self._buffers[buffer][offset : offset + len(data)] = data.tobytes()

    def read(self, buffer: int, offset: int, bytes: int) -> bytearray:
        return self._buffers[buffer][offset : offset + bytes]


def test_a_memory_test_of_a_foreign_container_counts_banks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert validate_bare(cast(BareBoards, InMemory()), 1 << 20) == []
    assert "memory:   0%" in terminal.getvalue() and "0/3 [" in terminal.getvalue()


SPACE = {
    "precision": ("fp16",), "array_rows": (16, 32), "array_columns": (16, 32), "tile": (16,),
    "lanes": (4, 8), "kv_uram": (0,), "prefetch_bytes": (0,), "ports": (16, 32),
}  # fmt: skip


def test_a_search_counts_its_generations() -> None:
    pytest.importorskip("scipy")
    search = Exploration("u280", 1, find_config("gpt2-345m"), 8, 8, SPACE)
    counted: list[tuple[int, int]] = []
    search.evolve(1, generations=3, progress=lambda done, total: counted.append((done, total)))
    assert counted == [(1, 3), (2, 3), (3, 3)]


def test_the_command_shows_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr("lora_lab.timing.dse.SPACE", SPACE)  # a search of some milliseconds
    lora.main(["lab", "dse", "--model", "gpt2-345m", "--json"], standalone_mode=False)
    assert "searching:" in terminal.getvalue() and "/30 [" in terminal.getvalue()
