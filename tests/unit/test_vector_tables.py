"""Every vector operation of abi.h has its row in each table of the Python side, and one that is
unknown is an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lora_host import abi, native
from lora_host.emu import run_kernel, take_failure
from lora_host.emu.vector import OPERATIONS as NUMPY_KERNELS
from lora_host.errors import RequestError
from lora_lab.timing.vector_costs import VECTOR_COSTS, vector_cost
from lora_sdk.compile.isa import Vector
from lora_sdk.selftest import units, vectors
from tests.unit.kernel_rig import ONCHIP, Rig

DECLARED = abi.names("VEC_")
TABLES: dict[str, Mapping[int, object]] = {
    "NumPy kernels": NUMPY_KERNELS,
    "timing": VECTOR_COSTS,
    "self-test": {**vectors.OPERATIONS, **dict.fromkeys(vectors.UNTESTED)},
}


def missing(table: Mapping[int, object], declared: Mapping[int, str]) -> list[str]:
    """Names without a row, and rows without a name."""
    extra = [f"row {op}" for op in table if op not in declared]
    return [name for op, name in declared.items() if op not in table] + extra


@pytest.mark.parametrize("name", TABLES)
def test_every_operation_has_a_row(name: str) -> None:
    assert len(DECLARED) >= 16
    assert not missing(TABLES[name], DECLARED)


@pytest.mark.parametrize("name", TABLES)
def test_a_removed_row_and_a_new_operation_are_found(name: str) -> None:
    table = dict(TABLES[name])
    assert missing(table, {**DECLARED, 99: "LORA_VEC_NEW"}) == ["LORA_VEC_NEW"]
    del table[abi.VEC_SWIGLU]
    assert missing(table, DECLARED) == ["LORA_VEC_SWIGLU"]
    table[98] = None
    assert missing(table, DECLARED) == ["LORA_VEC_SWIGLU", "row 98"]


def test_all_self_tests_are_run() -> None:
    assert set(vectors.OPERATIONS.values()) <= set(units.TESTS)


def test_the_self_test_of_an_operation_runs_that_operation() -> None:
    from lora_sdk.selftest.bench import Site

    site = Site(rank=0, boards=1, control=40, banks=range(3), seed=1)
    for op, test in vectors.OPERATIONS.items():
        used = {c.op for c in test.make(site).commands if isinstance(c, Vector)}
        assert used == {op}, test.what


@pytest.mark.parametrize("op", [0, max(DECLARED) + 1])
def test_an_unknown_operation_is_named(op: int) -> None:
    with pytest.raises(RequestError, match=f"'new': vector operation {op} has no timing"):
        vector_cost(Vector(what="new", op=op, columns=4))
    said: list[str] = []

    def runner(name: str, call: Any) -> int:
        status = run_kernel(native.ffi(), name, call)
        said.append(str(take_failure()))
        return status

    rig = Rig(runner=runner)
    rig.rows(1)
    before = rig.banks[ONCHIP].copy()
    assert rig.run("vector", op=op, columns=64, y_bank=ONCHIP).status != 0
    assert f"vector operation {op} is unknown" in said[0]
    assert (rig.banks[ONCHIP] == before).all()
