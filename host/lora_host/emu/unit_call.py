"""A kernel's view of its board: the command, the step, and typed views of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lora_host import abi
from lora_host.numerics import F16, F32, canonical_fp32, to_fp16

LINE_BYTES, NO_BANK, BANK_ONCHIP = abi.LINE_BYTES, abi.NO_BANK, abi.BANK_ONCHIP
FLAG_SELECTED = abi.FLAG_SELECTED
NO_ROW = 0xFFFFFFFF
_EXPONENT = np.uint16(0x7C00)


def padded(size: int) -> int:
    """`size` bytes rounded up to whole lines."""
    return -(-size // LINE_BYTES) * LINE_BYTES


class UnitCall:
    """One call of one unit: struct lora_unit_call with its command cast to `kind`.

    Views share the bank's memory. ValueError or TypeError if a view exceeds the bank.
    """

    def __init__(self, ffi: Any, call: Any, kind: str) -> None:
        self.command = ffi.cast(f"struct lora_{kind} *", call.command)
        self.list = call.list
        self.state = call.state
        self._ffi = ffi
        self._call = call
        self._buffers: dict[int, Any] = {}
        call.nonfinite_count = 0
        call.nonfinite_row = NO_ROW
        self.selected = bool(self.command.flags & FLAG_SELECTED)
        self.row_count = self.state.selected_count if self.selected else self.state.row_count

    def step_row(self, i: int) -> int:
        """Index in the step of row `i` of this command."""
        return int(self.state.selected[i]) if self.selected else i

    @staticmethod
    def fp32(bits: int) -> np.float32:
        """The FP32 value of a command's 32-bit field."""
        value: np.float32 = np.array([bits], np.uint32).view(np.float32)[0]
        return value

    def rows(self) -> list[Any]:
        """struct lora_row of each of this command's rows."""
        return [self.state.rows[self.step_row(i)] for i in range(self.row_count)]

    def buffer(self, bank: int) -> Any:
        """The bank's whole memory. ValueError if none is reserved."""
        if bank not in self._buffers:
            base = self._call.banks[bank]
            if not base:
                raise ValueError(f"bank {bank} is not reserved")
            self._buffers[bank] = self._ffi.buffer(base, self._call.bank_bytes[bank])
        return self._buffers[bank]

    def take_rows(self, bank: int, rows: NDArray[np.uint8]) -> None:
        """Rows of bytes in the place of `bank`, which are then all that the call has."""
        self._buffers = {**self._buffers, bank: rows.reshape(-1)}
        self.row_count = len(rows)

    def view(
        self, bank: int, offset: int, shape: tuple[int, ...], dtype: DTypeLike
    ) -> NDArray[Any]:
        """Contiguous array at byte `offset` of a bank."""
        found: NDArray[Any] = np.ndarray(shape, dtype, self.buffer(bank), offset)
        return found

    def rows_view(
        self, bank: int, offset: int, stride: int, columns: int, dtype: DTypeLike
    ) -> NDArray[Any]:
        """This command's rows, [rows, columns], `stride` bytes apart."""
        size = np.dtype(dtype).itemsize
        shape = (self.row_count, columns)
        strides = (stride, size)
        found: NDArray[Any] = np.ndarray(shape, dtype, self.buffer(bank), offset, strides)
        return found

    def store_fp16(self, target: F16, values: F32) -> None:
        """Rounds and stores [rows, ...]. Counts non-finite values (docs/numbers.md, 1.2)."""
        half = to_fp16(values)
        target[...] = half
        bad = (half.view(np.uint16) & _EXPONENT) == _EXPONENT
        if bad.any():
            self.count_nonfinite(bad)

    def store_fp32(self, target: F32, values: F32) -> None:
        """Stores [rows, ...]. Counts non-finite values."""
        bad = ~np.isfinite(values)
        if bad.any():
            values = canonical_fp32(values.copy())
            self.count_nonfinite(bad)
        target[...] = values

    def count_nonfinite(self, bad: NDArray[np.bool_]) -> None:
        """Counts non-finite values: `bad` [rows, ...]. Records the row of the first one."""
        by_row = bad.reshape(bad.shape[0], -1)
        first = self.step_row(int(np.flatnonzero(by_row.any(axis=1))[0]))
        self._call.nonfinite_count += int(bad.sum())
        self._call.nonfinite_row = min(self._call.nonfinite_row, first)
