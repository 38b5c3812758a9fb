"""Adapters' slots, of any layout that abi.h allows, under the commands of other tests: a runner
that puts them into a call's banks before it runs the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi, native, rtl
from lora_sdk.adapters.cut import a_layout, b_layout
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import padded, units_runner
from tests.unit.kernel_rig import ONCHIP, SELECTED, Result, Rig, Runner, numpy_runner

Half = NDArray[np.float16]
Fill = Callable[..., Half]  # (seed, *shape)
BANKS = (4, 3)  # first, count
MATRIX, MATRICES, LINE, H = 3, 11, 5, (3 << 20) + 6  # h need not begin at a line


@dataclass(frozen=True)
class Factor:
    """`values` [rank_count, count]; `scale`: FP32."""

    values: Half
    first: int = 0
    rank_first: int = 0
    rank: int = 0  # 0: as many as there are, padded
    h_first: int = 0
    h_run: int = 1024
    h_skip: int = 0
    scale: float = 0.5

    def record(self, offset: int) -> Any:
        found = np.zeros((), abi.dtype("adapter_factor"))
        ranks, count = self.values.shape
        found["first"], found["count"], found["offset"] = self.first, count, offset
        found["rank_first"], found["rank_count"] = self.rank_first, ranks
        found["rank"] = self.rank or -(-(self.rank_first + ranks) // 8) * 8
        found["h_run"], found["h_first"], found["h_skip"] = self.h_run, self.h_first, self.h_skip
        found["scale"] = np.float32(self.scale).view(np.uint32)
        return found


@dataclass(frozen=True)
class Adapter:
    """Of one matrix; the slot's other matrices have none. `gap`: bytes of the slot before the
    values, so that they lie in other chunks."""

    down: Sequence[Factor] = ()
    up: Sequence[Factor] = ()
    gap: int = 0

    def image(self) -> NDArray[np.uint8]:
        directory = np.zeros(MATRICES, abi.dtype("adapter_matrix"))
        at = padded(64 + directory.nbytes)
        directory[MATRIX] = (at, len(self.down), len(self.up))
        header = np.zeros(1, abi.dtype("adapter_slot"))
        header["magic"] = abi.ADAPTER_MAGIC
        parts = [(0, header), (64, directory)]
        offset = padded(at + 64 * (len(self.down) + len(self.up)) + self.gap)
        laid = [(f, a_layout(f.values)) for f in self.down]
        laid += [(f, b_layout(f.values, f.first)) for f in self.up]
        for number, (factor, values) in enumerate(laid):
            parts += [(at + 64 * number, factor.record(offset).reshape(1)), (offset, values)]
            offset = padded(offset + values.nbytes)
        image = np.zeros(offset, np.uint8)
        for where, part in parts:
            raw = np.frombuffer(np.ascontiguousarray(part).tobytes(), np.uint8)
            image[where : where + len(raw)] = raw
        return image


@dataclass
class Slots:
    """Slots, and which one each of the step's rows names."""

    adapters: Sequence[Adapter]
    rows: Sequence[int]  # by the step's row, round and round; -1: none
    columns: int = 64  # of h
    h: Fill = normal
    spoil: Callable[[NDArray[np.uint8]], None] | None = None  # of the first slot's bytes
    fields: dict[str, int] = field(default_factory=dict)  # of the list, where wrong ones are tried
    seed: int = 1
    line: int = LINE

    def place(self, call: Any) -> None:
        """The list's header, the rows' fields, the slots' bytes and rows of h."""
        images = [adapter.image() for adapter in self.adapters]
        if self.spoil:
            self.spoil(images[0])
        header = call.list
        header.adapter_slots = len(images)
        header.adapter_chunks = max(-(-len(i) // abi.ADAPTER_CHUNK) for i in images)
        header.adapter_matrices, header.adapter_columns = MATRICES, self.columns
        header.adapter_bank_first, header.adapter_bank_count = BANKS
        header.adapter_line = self.line
        for name, value in self.fields.items():
            setattr(header, name, value)
        for slot, image in enumerate(images):
            for chunk in range(-(-len(image) // abi.ADAPTER_CHUNK)):
                row, bank = divmod(slot * header.adapter_chunks + chunk, BANKS[1])
                at = chunk * abi.ADAPTER_CHUNK
                self._put(
                    call, BANKS[0] + bank, self.line * 64 + row * abi.ADAPTER_CHUNK,
                    image[at : at + abi.ADAPTER_CHUNK],
                )  # fmt: skip
        for i in range(call.state.row_count):
            call.state.rows[i].adapter = self.rows[i % len(self.rows)]

    def stride(self) -> int:
        return 2 * self.columns + 10

    def place_h(self, call: Any, rows: int) -> None:
        for i, row in enumerate(self.h(self.seed + 50, rows, self.columns)):
            self._put(call, ONCHIP, H + i * self.stride(), row)

    @staticmethod
    def _put(call: Any, bank: int, offset: int, values: NDArray[Any]) -> None:
        raw = values.tobytes()
        memory = native.ffi().buffer(call.banks[bank], call.bank_bytes[bank])
        memory[offset : offset + len(raw)] = raw

    def under(self, runner: Runner) -> Runner:
        """Runs a matmul with these adapters."""

        def run(name: str, call: Any) -> int:
            command = native.ffi().cast("struct lora_matrix *", call.command)
            command.adapter, command.h_offset, command.h_stride = MATRIX + 1, H, self.stride()
            chosen = bool(command.flags & SELECTED)
            self.place(call)
            self.place_h(call, call.state.selected_count if chosen else call.state.row_count)
            return runner(name, call)

        return run


@dataclass
class Down:
    """h = FP16(A*x) of rows `x` [rows, k]."""

    x: Half
    slots: Slots
    selected: tuple[int, ...] | None = None

    def run(self, runner: Runner) -> tuple[Rig, Result]:
        rows, k = self.x.shape
        rig = Rig(bank_bytes=1 << 22, runner=self._placing(runner))
        rig.rows(rows if self.selected is None else max(self.selected) + 1, self.selected)
        stride = padded(2 * k) + 64
        rig.place_rows(ONCHIP, 64, stride, self.x)
        found = rig.run(
            "adapter", opcode=abi.CMD_ADAPTER, adapter=MATRIX, k=k, x_offset=64, x_stride=stride,
            h_offset=H, h_stride=self.slots.stride(),
            flags=0 if self.selected is None else SELECTED,
        )  # fmt: skip
        return rig, found

    def _placing(self, runner: Runner) -> Runner:
        def run(name: str, call: Any) -> int:
            self.slots.place(call)
            return runner(name, call)

        return run


def equal(first: tuple[Rig, Result], second: tuple[Rig, Result]) -> bool:
    """Results, and every byte of every bank."""
    (one, wanted), (other, found) = first, second
    banks = all(np.array_equal(one.banks[b], other.banks[b]) for b in one.banks)
    return banks and wanted == found


def same_down(units: Any, case: Down) -> bool:
    """Whether the unit itself did it, as the NumPy model does."""
    before = rtl.simulated_work(units).adapters
    right = equal(case.run(numpy_runner), case.run(units_runner(units)))
    return right and rtl.simulated_work(units).adapters == before + 1


def same_up(units: Any, case: Any, slots: Slots) -> bool:
    """The same of a matmul, `case.run(runner)` of other tests, whose rows have adapters."""
    before = rtl.simulated_work(units).simulated
    right = equal(case.run(slots.under(numpy_runner)), case.run(slots.under(units_runner(units))))
    return right and rtl.simulated_work(units).simulated == before + 1


def plain_up(n: int, rank: int, fill: Fill = normal, seed: int = 1, **fields: Any) -> Adapter:
    """One factor of B over all columns."""
    return Adapter(up=[Factor(fill(seed, rank, n), **fields)])
