"""One emulated board's memory and unit calls for kernel tests: no cluster, no firmware. Values are
placed where abi.h says, and the kernels find them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import native
from lora_host.emu import run_kernel, take_failure

ONCHIP, CONTROL, TABLES, NO_BANK = 63, 32, 33, 255
WEIGHT_BANKS, KV_BANKS = (0, 3), (4, 3)  # first, count
SELECTED = 0x8
NO_COUNTER = 0xFFFF
Runner = Callable[[str, Any], int]


def numpy_runner(name: str, call: Any) -> int:
    """The NumPy model; its traceback becomes the test's."""
    status = run_kernel(native.ffi(), name, call)
    failure = take_failure()
    assert not failure, failure
    return status


def refusing_runner(name: str, call: Any) -> int:
    """For tests that expect the model to refuse."""
    status = run_kernel(native.ffi(), name, call)
    assert take_failure()
    return status


@dataclass
class Result:
    status: int
    nonfinite_count: int
    nonfinite_row: int


@dataclass
class Rig:
    """Bank memories and the structures of a step."""

    bank_bytes: int = 1 << 20
    runner: Runner = numpy_runner
    banks: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ffi = native.ffi()
        self.list = self.ffi.new("struct lora_list *")
        self.list.control_bank = CONTROL
        self.state = self.ffi.new("struct lora_step_state *")
        for bank in (*range(8), CONTROL, TABLES, ONCHIP):
            # what nobody wrote reads as NaN, so that reading padding shows
            self.banks[bank] = np.full(self.bank_bytes, 0xFF, np.uint8)

    def place(self, bank: int, offset: int, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        self.banks[bank][offset : offset + data.size] = data

    def place_rows(self, bank: int, offset: int, stride: int, rows: NDArray[Any]) -> None:
        for i, row in enumerate(rows):
            self.place(bank, offset + i * stride, row)

    def read_rows(
        self, bank: int, offset: int, stride: int, shape: tuple[int, int], dtype: Any
    ) -> NDArray[Any]:
        size = shape[1] * np.dtype(dtype).itemsize
        memory = self.banks[bank]
        starts = [offset + i * stride for i in range(shape[0])]
        return np.array([memory[a : a + size].view(dtype) for a in starts]).reshape(shape)

    def rows(self, count: int, selected: Sequence[int] | None = None) -> None:
        self.state.row_count = count
        chosen = list(range(count)) if selected is None else list(selected)
        self.state.selected_count = len(chosen)
        for i, row in enumerate(chosen):
            self.state.selected[i] = row

    def place_matrix(self, weights: NDArray[np.float16], merge: int, first: int, line: int) -> None:
        """Blocks of [K][N] over the weight banks; what pads a block stays as it was."""
        rows, columns = weights.shape
        k_blocks = -(-rows // 128)
        bank_first, bank_count = WEIGHT_BANKS
        for tile in range(-(-columns // 32)):
            for k_block in range(k_blocks):
                j = tile * k_blocks + k_block
                request = first + j // merge
                bank = bank_first + request % bank_count
                offset = line * 64 + (request // bank_count * merge + j % merge) * 8192
                part = weights[k_block * 128 :, tile * 32 :][:128, :32]
                self.place_rows(bank, offset, 64, part)

    def run(self, name: str, **fields: Any) -> Result:
        """Runs kernel `name` with a command of these fields."""
        ffi = self.ffi
        command = ffi.new(f"struct lora_{name} *")
        for key, value in fields.items():
            setattr(command, key, value)
        bases = ffi.new("uint8_t *[64]")
        sizes = ffi.new("uint64_t[64]")
        for bank, memory in self.banks.items():
            bases[bank] = ffi.cast("uint8_t *", memory.ctypes.data)
            sizes[bank] = memory.size
        call = ffi.new("struct lora_unit_call *")
        call.size = ffi.sizeof("struct lora_unit_call")
        call.command = ffi.cast("struct lora_command *", command)
        call.list, call.state = self.list, self.state
        call.banks, call.bank_bytes = bases, sizes
        status = self.runner(name, call)
        return Result(status, call.nonfinite_count, call.nonfinite_row)
