"""Every vector operation of abi.h has its row in the tables of native kernels and firmware, and
kernels refuse a number that is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi, native
from tests.unit.kernel_rig import NO_BANK, ONCHIP, Rig

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "csrc/kernels/units/vector.c"
FIRMWARE = ROOT / "firmware/fw_check_vector.c"


def declared() -> dict[str, int]:
    """Name -> number of the operations in abi.h."""
    text = (ROOT / "csrc/include/lora/abi.h").read_text()
    return {name: int(n) for name, n in re.findall(r"LORA_VEC_(\w+) = (\d+)", text)}


def rows(text: str) -> list[str]:
    """The operations that have a row in a file's table."""
    return re.findall(r"^ +\[LORA_VEC_(\w+)\] = ", text, re.MULTILINE)


def native_runner(name: str, call: Any) -> int:
    kernels = native.lib().lora_kernels_native
    return getattr(kernels, name)(kernels.context, call)


@pytest.mark.parametrize("path", [KERNELS, FIRMWARE], ids=lambda path: path.name)
def test_every_operation_has_a_row(path: Path) -> None:
    assert len(declared()) >= 16
    assert rows(path.read_text()) == list(declared())


def test_a_missing_row_is_found() -> None:
    text = KERNELS.read_text()
    assert rows(text.replace("[LORA_VEC_GELU_ERF] = ", "")) != list(declared())


@pytest.mark.parametrize("op", [0, max(declared().values()) + 1, 255])
def test_native_kernels_refuse_an_unknown_operation(op: int) -> None:
    rig = Rig(runner=native_runner)
    rig.rows(1)
    before = rig.banks[ONCHIP].copy()
    found = rig.run("vector", op=op, columns=64, y_bank=ONCHIP, a_bank=NO_BANK, b_bank=NO_BANK)
    assert found.status == abi.ERR_OPCODE
    assert (rig.banks[ONCHIP] == before).all()


@pytest.mark.parametrize("name", sorted(declared()))
def test_native_kernels_know_every_operation(name: str) -> None:
    """No entry between two others is empty: whatever the operands, the number is known."""
    rig = Rig(runner=native_runner)
    rig.rows(1)
    found = rig.run("vector", op=declared()[name], columns=64, y_bank=ONCHIP, extra=64)
    assert found.status != abi.ERR_OPCODE
