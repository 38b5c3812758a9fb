"""Compares a matmul of the NumPy kernels with simulated units: from equal memory, all banks must be
equal afterwards. Tests may build variants of the units."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import rtl
from tests.unit.kernel_rig import (
    CONTROL,
    NO_BANK,
    ONCHIP,
    SELECTED,
    TABLES,
    WEIGHT_BANKS,
    Result,
    Rig,
    Runner,
    numpy_runner,
)

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "overlays" / "rtl"
FP16, FP32 = 1, 2
X_OFFSET, Y_OFFSET, LINE = 64, 1 << 20, 64


def units_runner(units: Any, seed: int = rtl.SEED) -> Runner:
    """Runs kernels of a loaded library."""
    table = rtl.kernel_table(units, seed)
    return lambda name, call: int(getattr(table, name)(table.context, call))


def build(
    folder: Path, sources: Path | None = None, lanes: int = 8, rows: int = 1,
    unit: str = "fp16", depth: int = 8, primitives: Path | None = None, pipes: int = 0,
    attentions: int = 1, floats: int = 1,
) -> Any:  # fmt: skip
    """One unit, of another size, or of other `sources` than overlays/rtl, built in `folder`,
    loaded. `primitives`: a model of DSP58 or DSP48E2; the INT8 array is built with them. `pipes`:
    columns a cycle of the vector unit's pipes. `attentions`: units that share a command,
    `floats` of them with lanes of FP16."""
    target = folder / rtl.LIBRARY
    named = [] if primitives is None else [f"{primitives.stem[:5]}=1", f"PRIMITIVES={primitives}"]
    subprocess.run(
        [
            "make", "-C", ROOT / "csrc" / "rtl", f"BUILD={folder}", f"TARGET={target}",
            f"RTL={sources or SOURCES}", f"LANES={lanes}", f"ROWS={rows}",
            f"DEPTH={depth}", f"UNITS={unit}", f"PIPES={pipes}", "OPT=-O0",
            f"ATTENTIONS={attentions}", f"FLOATS={floats}",
            *named,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return rtl.load(target)


def mistaken(folder: Path, path: str, right: str, wrong: str) -> Path:
    """The hardware source with one text of a file replaced, in `folder`/rtl."""
    sources = Path(shutil.copytree(SOURCES, folder / "rtl"))
    text = (sources / path).read_text()
    assert text.count(right) == 1
    (sources / path).write_text(text.replace(right, wrong))
    return sources


def first_then_long(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test that builds units for each: all but the first run by hand."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.long) for case in others)]


def padded(size: int) -> int:
    return -(-size // LINE) * LINE


@dataclass
class Matmul:
    """y = x @ w + bias of FP16 operands [rows, k], [k, n], [n]; `place` is merge, first, line."""

    x: NDArray[np.float16]
    w: NDArray[np.float16]
    bias: NDArray[np.float16] | None = None
    y_type: int = FP32
    place: tuple[int, int, int] = (2, 5, 3)
    selected: tuple[int, ...] | None = None
    bank_bytes: int = 1 << 22

    def run(self, runner: Runner) -> tuple[Rig, Result]:
        rig = Rig(bank_bytes=self.bank_bytes, runner=runner)
        rows, (k, n) = len(self.x), self.w.shape
        count = rows if self.selected is None else max(self.selected) + 1
        rig.rows(count, self.selected)
        merge, first, line = self.place
        x_stride, y_stride = padded(2 * k) + LINE, padded(self.y_type * 2 * n) + LINE
        rig.place_rows(ONCHIP, X_OFFSET, x_stride, self.x)
        rig.place_matrix(self.w, merge=merge, first=first, line=line)
        if self.bias is not None:
            rig.place(TABLES, 2 * LINE, self.bias)
        found = rig.run(
            "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=merge,
            weight_type=FP16, weight_line=line, first=first, x_bank=ONCHIP,
            y_bank=CONTROL if self.y_type == FP32 else ONCHIP, k=k, n=n, x_offset=X_OFFSET,
            x_stride=x_stride, y_offset=Y_OFFSET, y_stride=y_stride, bias_line=2,
            bias_bank=NO_BANK if self.bias is None else TABLES, y_type=self.y_type,
            flags=0 if self.selected is None else SELECTED,
        )  # fmt: skip
        return rig, found


def same(matmul: Matmul, units: Any, runner: Callable[..., Runner] = units_runner) -> bool:
    """Whether both give the same status, the same counts and the same bytes in every bank."""
    (model, expected), (array, found) = matmul.run(numpy_runner), matmul.run(runner(units))
    banks = all(np.array_equal(model.banks[b], array.banks[b]) for b in model.banks)
    return banks and expected == found
