"""A board's control by its table (lora/emu.h), here in Python: what it finds of the board."""

from __future__ import annotations

from typing import Any

import pytest

from lora_host import abi, native
from lora_host.cluster import Cluster
from lora_host.errors import LoraError
from lora_host.overlay import Overlay, load_overlay

OVERLAY = load_overlay("lora_f_u280")
BANK, OFFSET = 3, 4096
TEXT = b"what the last answered write holds"


class LastWrite:
    """In the place of simulated cards: an operation writes TEXT, and is done in the same poll."""

    def __init__(self, overlay: Overlay, boards: int) -> None:
        ffi = native.ffi()
        self.calls: Any = None
        self._functions = {
            "open": ffi.callback(
                "void *(void *, uint32_t, const struct lora_board_calls *)", self.open
            ),
            "begin": ffi.callback("void(void *)", lambda core: None),
            "poll": ffi.callback("uint32_t(void *)", self.poll),
            "close": ffi.callback("void(void *)", lambda core: None),
        }
        self.control = ffi.new("struct lora_control *", self._functions)
        self.control.size = ffi.sizeof("struct lora_control")
        self.control.slice_cycles = self.control.most_slices = 16

    def open(self, context: Any, board: int, calls: Any) -> Any:
        self.calls = calls
        return calls

    def poll(self, core: Any) -> int:
        if not self.calls.get_register(abi.REG_AP_CTRL) & abi.AP_START:
            return abi.FW_WAITING
        self.calls.write(BANK, OFFSET, TEXT, len(TEXT))
        self.calls.set_register(abi.REG_AP_CTRL, abi.AP_DONE)
        return abi.FW_DONE

    def close(self) -> None: ...


def test_an_answered_write_is_in_memory_when_the_host_sees_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unlike the firmware's, whose last write is on its way until something follows it."""
    monkeypatch.setattr("lora_host.cluster.Cards", LastWrite)
    with Cluster.open(1, ["sim:u280"], overlay=OVERLAY) as cluster:
        for bank in (BANK, OVERLAY.control_bank):
            cluster.reserve(0, bank, 1 << 20)
        with pytest.raises(LoraError, match=r"record|completion"):  # none is left
            cluster.checksum(0, BANK, 0, 64)
        assert cluster.read(0, BANK, OFFSET, len(TEXT)) == TEXT
