"""Slots' tables that contradict the list or themselves: the native kernels' status, and the next
command is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import abi
from tests.rtl.adapter_rig import MATRICES, MATRIX, Adapter, Down, Factor, Slots, same_down, same_up
from tests.rtl.test_adapter_products import fp16
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import padded, units_runner
from tests.unit.test_vector_operations import native_runner

pytestmark = pytest.mark.rtl

RUN = {"h_run": 3, "h_skip": 3}
DOWN = Adapter(down=[Factor(normal(1, 8, 300), **RUN)])
UP = Adapter(up=[Factor(normal(2, 8, 60), **RUN)])
Spoil = Callable[[NDArray[np.uint8]], None]


def factor(name: str, value: int) -> Spoil:
    def spoil(image: NDArray[np.uint8]) -> None:
        at = padded(64 + 8 * MATRICES)
        image[at : at + 64].view(abi.dtype("adapter_factor"))[name] = value

    return spoil


def entry(name: str, value: int) -> Spoil:
    def spoil(image: NDArray[np.uint8]) -> None:
        directory = image[64 : 64 + 8 * MATRICES].view(abi.dtype("adapter_matrix"))
        directory[name][MATRIX] = value

    return spoil


SPOILED: list[tuple[Spoil | None, dict[str, int]]] = [
    *((factor(name, value), {}) for name, value in (
        ("first", 1 << 30), ("count", (1 << 24) + 1), ("offset", 32), ("offset", 1 << 31),
        ("offset", 0xFFFFFFC0), ("rank_first", 9), ("rank", 1032), ("h_run", 0), ("h_first", 60),
        ("h_first", 0xFFFFFFFF), ("h_skip", 0xFFFFFFFF))),
    (entry("offset", 1 << 30), {}), (entry("down_count", 500), {}), (entry("up_count", 60000), {}),
    (None, {"adapter_slots": 0}), (None, {"adapter_matrices": 2}), (None, {"adapter_chunks": 0}),
    (None, {"adapter_columns": 4}),
]  # fmt: skip


def test_bad_tables(units: Any) -> None:
    runners, failed = (native_runner, units_runner(units)), 0
    for spoil, fields in SPOILED:
        down = Down(normal(3, 2, 300), Slots([DOWN], [0], spoil=spoil, fields=fields))
        native, found = (down.run(runner)[1].status for runner in runners)
        assert native == found
        failed += native != abi.OK
        slots, case = Slots([UP], [0, -1], spoil=spoil, fields=fields), fp16(40, 60, 2)
        native, found = (case.run(slots.under(runner))[1].status for runner in runners)
        assert native == found
        failed += native != abi.OK
    assert failed >= 2 * len(SPOILED) - 2
    assert same_down(units, Down(normal(3, 2, 300), Slots([DOWN], [0])))
    assert same_up(units, fp16(40, 60, 2), Slots([UP], [0, -1]))
