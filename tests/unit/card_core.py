"""The card around its soft core: an instruction-set emulator runs the overlay's firmware image,
and the blocks of firmware/hal_card.h answer: registers, unit mailboxes, window to board memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi

unicorn = pytest.importorskip("unicorn", reason="the rv32 image needs an rv32 core")

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "overlays" / "lora_f_u280" / "firmware.bin"
LOCAL_BYTES = 128 * 1024  # card.ld
CONTROL = 32
SLICE = 200_000  # instructions between two looks at the done bit
PAGE = 0x1000


def card_constants() -> dict[str, int]:
    """Addresses and offsets of hal_card.h by name."""
    text = (ROOT / "firmware" / "hal_card.h").read_text()
    return {
        name: int(value, 16) for name, value in re.findall(r"(CARD_\w+) =? ?(0x\w+?)u?\b", text)
    }


CARD = card_constants()


def sealed(vote: Any) -> bytes:
    """The vote with its seal, as csrc/include/lora/abi.h says."""
    seal = 0
    for word in np.frombuffer(vote.tobytes(), np.uint32)[:-1].tolist():
        mixed = (seal ^ word) * 0x9E3779B1 & 0xFFFFFFFF
        seal = (mixed << 16 | mixed >> 16) & 0xFFFFFFFF
    vote["seal"] = seal
    found: bytes = vote.tobytes()
    return found


class Card:
    """One board: soft core, registers, sparse memory by bank, units that are done at once."""

    def __init__(self) -> None:
        self.registers = np.zeros(0x2000 // 4, np.uint32)
        self.banks: dict[int, bytearray] = {}
        self.window = [0, 0]  # bank, page
        self.started: list[tuple[int, bytes]] = []
        self.on_start: Callable[[bytes], None] | None = None
        self.done_units: set[int] = set()
        self.command = bytearray(64)  # as written into a mailbox; one is filled at a time
        self.cycles = 0
        self._posted: list[tuple[int, int, bytes]] = []  # written, and not yet in memory
        self.blocks = {
            CARD[f"CARD_{name}"]: (size, read, write)
            for name, size, read, write in (
                ("REGISTERS", 0x2000, self._read_register, self._write_register),
                ("UNITS", 0x8000, self._read_unit, self._write_unit),
                ("LINKS", PAGE, self._read_zero, self._write_nothing),
                ("WINDOW_SELECT", PAGE, self._read_zero, self._write_select),
                ("BOARD", PAGE, self._read_board, self._write_nothing),
                ("WINDOW", PAGE, self._read_window, self._write_window),
            )
        }
        header, code = self._image()
        self._boot(code, int(header["entry"]))

    def _boot(self, code: bytes, entry: int) -> None:
        """The program in the core's local memory."""
        self.core = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
        self.core.mem_map(0, LOCAL_BYTES)
        self.core.mem_write(0, code)
        self.pc = entry
        for address, (size, read, write) in self.blocks.items():
            self.core.mmio_map(address, size, read, None, write, None)

    def _run(self) -> None:
        """The core, for SLICE instructions or about as many."""
        self.core.emu_start(self.pc, LOCAL_BYTES, count=SLICE)
        self.pc = self.core.reg_read(unicorn.riscv_const.UC_RISCV_REG_PC)

    @staticmethod
    def _image() -> tuple[Any, bytes]:
        data = IMAGE.read_bytes()
        header = np.frombuffer(data, abi.dtype("image_header"), 1)[0]
        return header, data[int(header["size"]) :]

    # The blocks, as the core sees them.

    def _read_zero(self, core: Any, offset: int, size: int, data: Any) -> int:
        return 0

    def _write_nothing(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        pass

    def _read_register(self, core: Any, offset: int, size: int, data: Any) -> int:
        return int(self.registers[offset // 4])

    def _write_register(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self.registers[offset // 4] = value
        if offset in (abi.REG_AP_CTRL, abi.REG_TOKEN):  # the host may look now
            self._posted.clear()

    def _arrive(self) -> None:
        for bank, at, data in self._posted:
            self.banks[bank][at : at + len(data)] = data
        self._posted.clear()

    def _read_unit(self, core: Any, offset: int, size: int, data: Any) -> int:
        unit, place = divmod(offset, CARD["CARD_UNIT_STRIDE"])
        if place == CARD["CARD_UNIT_CONTROL"] and unit in self.done_units:
            return CARD["CARD_DONE"]
        return 0

    def _write_unit(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        unit, place = divmod(offset, CARD["CARD_UNIT_STRIDE"])
        command = CARD["CARD_UNIT_COMMAND"]
        if command <= place < command + 64:
            self.command[place - command : place - command + size] = value.to_bytes(size, "little")
        elif place == CARD["CARD_UNIT_CONTROL"] and value == CARD["CARD_START"]:
            self._arrive()
            self.started.append((unit, bytes(self.command)))
            if self.on_start is not None:
                self.on_start(bytes(self.command))
            self.done_units.add(unit)
        elif place == CARD["CARD_UNIT_CONTROL"]:
            self.done_units.discard(unit)

    def _write_select(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self.window[offset // 4] = value

    def _read_board(self, core: Any, offset: int, size: int, data: Any) -> int:
        self.cycles += 1
        constants = {
            CARD["CARD_ONCHIP_BYTES"]: 16 << 20,
            CARD["CARD_CYCLES_PER_MS"]: 200_000,
            CARD["CARD_CYCLES_LO"]: self.cycles,
        }
        return constants.get(offset, 0)

    def _place(self, offset: int, size: int) -> tuple[bytearray, int]:
        bank, page = self.window
        memory = self.banks.setdefault(bank, bytearray())
        at = page * PAGE + offset
        if len(memory) < at + size:
            memory.extend(bytes(at + PAGE - len(memory)))
        return memory, at

    def _read_window(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._arrive()
        memory, at = self._place(offset, size)
        return int.from_bytes(memory[at : at + size], "little")

    def _write_window(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        _, at = self._place(offset, size)
        self._posted.append((self.window[0], at, value.to_bytes(size, "little")))

    # The host's side.

    def write(self, bank: int, offset: int, data: bytes) -> None:
        """Bytes into board memory."""
        memory = self.banks.setdefault(bank, bytearray())
        memory.extend(bytes(max(0, offset + len(data) - len(memory))))
        memory[offset : offset + len(data)] = data

    def answer_votes(self, votes_offset: int, boards: int, differ: int = 0) -> None:
        """From now on the other boards say what board 0 says, before its votes are moved to the
        control bank. `differ`: bits of their digests that are not board 0's."""

        def answer(command: bytes) -> None:
            record = np.frombuffer(command, abi.dtype("move_rows"))[0]
            if not record["flags"] & abi.FLAG_VOTES or record["y_bank"] != CONTROL:
                return
            kind = abi.dtype("vote")
            own = np.frombuffer(self.banks[CONTROL], kind, 1, votes_offset)[0].copy()
            own["digest"] ^= differ
            for rank in range(1, boards):
                own["rank"] = rank
                self.write(CONTROL, votes_offset + rank * kind.itemsize, sealed(own))

        self.on_start = answer

    def set_arenas(self, arenas: dict[int, int]) -> None:
        """One arena a bank, from offset 0."""
        records = np.zeros(len(arenas), abi.dtype("arena_record"))
        for record, (bank, size) in zip(records, sorted(arenas.items()), strict=True):
            record["bank"], record["bytes"], record["valid"] = bank, size, 1
        words = np.frombuffer(records.tobytes(), np.uint32)
        first = abi.REG_ARENAS // 4
        self.registers[first : first + len(words)] = words
        self.registers[abi.REG_ARENA_COUNT // 4] = len(arenas)

    def operate(self, operation: int, slices: int = 400, **registers: int) -> Any:
        """Runs one operation to its done bit; returns (completion record, error record)."""
        self.started.clear()
        self.registers[abi.REG_OPERATION // 4] = operation
        self.registers[abi.REG_CONTROL_BANK // 4] = CONTROL
        for name, value in registers.items():
            self.registers[getattr(abi, f"REG_{name}") // 4] = value
        self.registers[abi.REG_AP_CTRL // 4] = abi.AP_START
        for _ in range(slices):
            self._run()
            if self.registers[abi.REG_AP_CTRL // 4] & abi.AP_DONE:
                break
        else:
            pytest.fail(f"operation {operation} has no end")
        memory = bytes(self.banks[CONTROL][:0x1000])
        completion = np.frombuffer(memory, abi.dtype("completion"), 1, abi.COMPLETION_OFFSET)[0]
        error = np.frombuffer(memory, abi.dtype("error_record"), 1, abi.ERROR_OFFSET)[0]
        return completion, error
