"""Known answers of each unit alone: right on sound boards, and the unit at fault is named with its
first wrong byte."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import pairwise

import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
from lora_sdk.selftest.bench import UnitResult
from lora_sdk.selftest.units import TESTS, check_units
from tests.transports import Transport


def results(cluster: Cluster) -> list[UnitResult]:
    cluster.links_up(cluster.cables)
    return list(check_units(cluster))


def faults(cluster: Cluster) -> dict[tuple[str, str], str]:
    return {(r.unit, r.what): r.fault for r in results(cluster) if r.fault}


@pytest.mark.parametrize(
    ("boards", "overlay", "kernels"),
    [
        (1, "lora_f_u280", "native"),
        (2, "lora_f_u280", "native"),
        (1, "lora_f_u280", "numpy"),
        (2, "lora_f_u280", "numpy"),
        (2, "lora_q_v80", "native"),
        (1, "lora_q_v80", "numpy"),
        (1, "lora_w4a8_u280", "native"),
        (1, "lora_w4a8_u280", "numpy"),
    ],
)
def test_sound_boards_give_the_known_answers(boards: int, overlay: str, kernels: str) -> None:
    with Cluster.open(boards, overlay=load_overlay(overlay), kernels=kernels) as cluster:
        found = results(cluster)
    assert not [r for r in found if r.fault]
    assert {r.unit for r in found if not r.skipped} >= {"DMA", "MPU", "VFU"}
    assert [r.unit for r in found if r.skipped] == (["Router"] * 2 if boards == 1 else [])
    kinds = {test.what for test in TESTS if test.weights in load_overlay(overlay).weights}
    assert {r.what for r in found} == kinds | {"checksum"}


@pytest.fixture
def numpy_pair() -> Iterator[Cluster]:
    with Cluster.open(2, overlay=load_overlay("lora_f_u280"), kernels="numpy") as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("module", "name", "unit", "what"),
    [
        ("matrix", "segment_bounds", "MPU", {"matmul, FP32"}),  # FP16 hides most of it
        ("norm", "segment_bounds", "VFU", {"LayerNorm sums", "RMSNorm sums"}),
    ],
)  # fmt: skip
def test_another_order_of_a_sum_is_that_units_fault(
    numpy_pair: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
    unit: str,
    what: set[str],
) -> None:
    def in_fours(columns: int) -> tuple[tuple[int, int], ...]:
        ends = [columns * s // 4 for s in range(5)]
        return tuple(pairwise(ends)) + ((columns, columns),) * 4

    kernels = importlib.import_module(f"lora_host.emu.{module}")
    monkeypatch.setattr(kernels, name, in_fours)
    found = faults(numpy_pair)
    assert what <= {named for at, named in found if at == unit}
    assert {at for at, _ in found} <= {unit, "Router"}  # the all-reduce has norms in it
    for named in what:
        assert (
            found[unit, named].startswith("board 0: ") and "first wrong byte" in found[unit, named]
        )


def test_all_units_over_every_transport(transport: Transport) -> None:
    with transport.open(2) as cluster:
        assert not faults(cluster)


def test_a_router_that_misfiles_is_named(transport: Transport) -> None:
    with transport.open(4) as cluster:
        cluster.links_up(cluster.cables)
        transport.fault(cluster, 1, abi.FAULT_MISFILE)
        found = {(r.unit, r.what): r.fault for r in check_units(cluster) if r.fault}
    assert set(found) == {("Router", "gather"), ("Router", "all-reduce of a norm's sums")}
    assert "gathered row: first wrong byte" in found["Router", "gather"]


@pytest.mark.parametrize("unit", ["MPU", "VFU", "DMA"])
def test_a_stuck_unit_is_named_and_the_tests_end(unit: str) -> None:
    with Cluster.open(1, overlay=load_overlay("lora_f_u280")) as cluster:
        assert cluster.emulated is not None
        cluster.emulated.fault(0, abi.FAULT_UNIT_STUCK, getattr(abi, f"UNIT_{unit}"))
        found = {(r.unit, r.what): r.fault for r in check_units(cluster) if r.fault}
    named = [text for (at, _), text in found.items() if at == unit]
    assert named and all(unit in text for text in named)


def test_a_wrong_byte_in_memory_is_counted_and_placed(
    numpy_pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = numpy_pair.read

    def spoilt(board: int, bank: int, offset: int, count: int) -> bytearray:
        data = real(board, bank, offset, count)
        if board == 1 and len(data) > 300:
            data[300] ^= 0x40
        return data

    monkeypatch.setattr(numpy_pair, "read", spoilt)
    found = faults(numpy_pair)
    assert "board 1: moved rows: first wrong byte 300 of" in found["DMA", "row moves"]
