"""Builds and runs tests/rtl/core: the soft core beside a reference, that one beside unicorn."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import unicorn
from unicorn import riscv_const

from tests.rtl import bench_rig
from tests.rtl_rig import SOURCES

FOLDER = bench_rig.built("core")
LOCAL_BYTES = 0x20000
DEVICE, DEVICE_BYTES = 0x10000000, 0x1000
REGISTERS = [getattr(riscv_const, f"UC_RISCV_REG_X{i}") for i in range(1, 32)]
FETCH_FAULT = 1


def build(target: str, sources: Path = SOURCES, folder: Path = FOLDER, opt: str = "-O2") -> Path:
    """A program or library over `sources`."""
    return bench_rig.build("core", target, sources=sources, folder=folder, OPT=opt)


def lockstep(program: Path, instructions: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Random programs on the core and on the reference."""
    arguments = ["--instructions", instructions, "--seed", seed]
    return bench_rig.run(program, *arguments)


class Access(ctypes.Structure):
    """struct bus_access."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("address", "bytes", "data")]


BUS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Access))


class Machine(ctypes.Structure):
    """struct machine."""

    _fields_ = [
        ("pc", ctypes.c_uint32), ("x", ctypes.c_uint32 * 32), ("code_end", ctypes.c_uint32),
        ("code_stores", ctypes.c_uint32), ("bus", BUS), ("context", ctypes.c_void_p),
        ("memory", ctypes.c_uint8 * LOCAL_BYTES),
    ]  # fmt: skip


class Reference:
    """The reference and unicorn with the same program."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(build("libreference.so")))
        self.library.reference_run.restype = ctypes.c_uint64
        self.library.reference_run.argtypes = [
            ctypes.POINTER(Machine), ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32)
        ]  # fmt: skip
        self.machine = Machine(bus=BUS(self._device))
        self.accesses: list[tuple[int, int, int]] = []
        self.replayed = 0
        self.core = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
        self.core.mem_map(0, LOCAL_BYTES)
        self.core.mmio_map(DEVICE, DEVICE_BYTES, self._read, None, self._write, None)

    def _device(self, context: Any, access: Any) -> int:
        one = access.contents
        if not DEVICE <= one.address < DEVICE + DEVICE_BYTES:
            return 0
        if not one.bytes:
            one.data = self.library.device_answer(len(self.accesses), one.address)
        self.accesses.append((one.address, one.bytes, one.data & 0xFFFFFFFF))
        return 1

    def _next(self, offset: int) -> tuple[int, int, int]:
        address, lanes, data = self.accesses[self.replayed]
        assert address == DEVICE + offset
        self.replayed += 1
        return lanes, data, 8 * (address % 4)

    def _read(self, core: Any, offset: int, size: int, data: Any) -> int:
        lanes, word, shift = self._next(offset)
        assert not lanes
        return word >> shift & (1 << 8 * size) - 1

    def _write(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        lanes, word, shift = self._next(offset)
        assert lanes == (1 << size) - 1 << shift // 8
        assert value == word >> shift & (1 << 8 * size) - 1

    def run(self, seed: int) -> tuple[int, int]:
        """One program on both: (instructions done, why it stops; 0: it does not)."""
        self.accesses.clear()
        self.replayed = 0
        machine, cause = self.machine, ctypes.c_uint32()
        self.library.program_make(ctypes.byref(machine), seed)
        self.core.mem_write(0, bytes(machine.memory))
        self.core.ctl_remove_cache(0, LOCAL_BYTES)
        for register in REGISTERS:
            self.core.reg_write(register, 0)
        done = self.library.reference_run(machine, 4000, ctypes.byref(cause))
        try:
            if done:
                self.core.emu_start(0, LOCAL_BYTES, count=done)
        except unicorn.UcError:  # it looks at the next instruction before it stops
            assert cause.value == FETCH_FAULT, f"program {seed}"
        found = [self.core.reg_read(register) for register in REGISTERS]
        assert found == machine.x[1:], f"program {seed}"
        assert self.core.reg_read(riscv_const.UC_RISCV_REG_PC) == machine.pc, f"program {seed}"
        assert self.core.mem_read(0, LOCAL_BYTES) == bytes(machine.memory), f"program {seed}"
        assert self.replayed == len(self.accesses)
        return done, cause.value
