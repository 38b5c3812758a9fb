"""Opening, memory and checksums through the whole host library."""

from __future__ import annotations

import gc
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.emulated import Emulated
from lora_host.errors import (
    LoraError,
    OverlayError,
    PlacementError,
    RequestError,
    TransportError,
)
from lora_host.overlay import load_overlay
from tests.transports import Transport

MIB = 1 << 20
OVERLAY = load_overlay("lora_f_u280")
TOPOLOGIES = Path(__file__).parents[1] / "topologies"


@pytest.fixture
def cluster(transport: Transport) -> Iterator[Cluster]:
    with transport.open(1) as opened:
        yield opened


def test_what_is_open_says_who_it_is() -> None:
    with Cluster.open(cluster_file=TOPOLOGIES / "ring4.yaml", overlay=OVERLAY) as cluster:
        assert [info.serial for info in cluster.infos] == [101, 102, 103, 104]
        assert cluster.infos[2].address == "emu:u280" and cluster.infos[2].kind == 0x280
        assert len(cluster.infos[0].banks) == 34 and len(cluster.cables) == 4
        assert cluster.size == 4 and "ring4.yaml" in cluster.why


def test_bytes_come_back_from_sub_ranges_of_every_kind_of_bank(cluster: Cluster) -> None:
    data = np.random.default_rng(5).integers(0, 256, MIB, dtype=np.uint8)
    for bank in (0, 31, 32, len(cluster.infos[0].banks) - 1):
        if bank == 32 and len(cluster.infos[0].banks) == 33:
            continue  # a V80's last one
        cluster.reserve(0, bank, MIB)
        cluster.write(0, bank, 0, data)
        assert cluster.read(0, bank, 77, 1000) == data[77:1077].tobytes()
        half = np.empty(1000, np.float16)
        cluster.read_into(0, bank, 64, half)
        assert half.tobytes() == data[64:2064].tobytes()
        assert cluster.read(0, bank, MIB, 0) == b""


def test_a_checksum_is_the_boards_own(cluster: Cluster) -> None:
    data = np.random.default_rng(6).integers(0, 256, 3 * MIB, dtype=np.uint8)
    cluster.reserve(0, 32, 4 * MIB)
    cluster.write(0, 32, MIB, data)
    assert cluster.checksum(0, 32, MIB, 3 * MIB) == zlib.crc32(data)
    assert cluster.checksum(0, 32, MIB + 64, 640) == zlib.crc32(data[64:704])
    cluster.write(0, 32, MIB + 100, bytes([data[100] ^ 1]))
    assert cluster.checksum(0, 32, MIB, 3 * MIB) != zlib.crc32(data)


def test_writes_run_beside_calls_of_another_thread(cluster: Cluster) -> None:
    """Into ranges that those calls do not use, without waiting for them."""
    piece = 64 << 10
    data = np.random.default_rng(7).integers(0, 256, 8 * piece, dtype=np.uint8)
    cluster.reserve(0, 32, MIB)  # for the control page
    cluster.reserve(0, 3, 2 * MIB)
    cluster.write(0, 3, 0, data)
    began = threading.Event()

    def write() -> None:
        for start in range(0, len(data), piece):
            cluster.write(0, 3, MIB + start, data[start : start + piece])
            began.set()

    thread = threading.Thread(target=write)
    with cluster._handle._lock:  # as a call that runs
        thread.start()
        assert began.wait(60)
    want = zlib.crc32(data)
    while thread.is_alive():
        assert cluster.checksum(0, 3, 0, len(data)) == want
    thread.join()
    assert cluster.checksum(0, 3, MIB, len(data)) == want
    assert cluster.read(0, 3, MIB, len(data)) == data.tobytes()


def test_ranges_outside_arenas_are_refused_with_numbers(cluster: Cluster) -> None:
    cluster.reserve(0, 3, MIB)
    cluster.reserve(0, 3, MIB, offset=MIB)
    for offset, size, available in (
        (MIB - 1, 2, 1),  # nothing crosses an arena, even into the next one
        (2 * MIB - 8, 16, 8),
        (2 * MIB + 64, 1, 0),
        (1 << 63, 1, 0),
    ):
        with pytest.raises(PlacementError, match=f"{available} B available") as caught:
            cluster.read(0, 3, offset, size)
        fields = caught.value.failure
        assert fields is not None and (fields.board, fields.bank) == (0, 3)
        assert (fields.offset, fields.requested, fields.available) == (offset, size, available)
        with pytest.raises(PlacementError):
            cluster.write(0, 3, offset, bytes(size))
    with pytest.raises(PlacementError, match="0 B of the bank are reserved"):
        cluster.checksum(0, 4, 0, 64)


def test_a_full_bank_and_a_missing_one_are_named(cluster: Cluster) -> None:
    banks = cluster.infos[0].banks
    usable, asked = banks[3], banks[3] // MIB * MIB + 2 * MIB
    said = rf"bank 3: {asked / MIB:.1f} MiB .* of {usable / MIB:.1f} MiB free"
    with pytest.raises(PlacementError, match=said) as caught:
        cluster.reserve(0, 3, asked)
    fields = caught.value.failure
    assert fields is not None and fields.requested == asked
    assert fields.capacity == usable == fields.available
    with pytest.raises(PlacementError, match="bank 3"):
        cluster.reserve(0, 3, 2 * 64, offset=usable // 64 * 64 - 64)
    count, kind = len(banks), cluster.overlay.board.name
    with pytest.raises(RequestError, match=rf"bank {count}: {kind} has banks 0\.\.{count - 1}"):
        cluster.reserve(0, count, 64)
    with pytest.raises(RequestError, match="bank 63"):
        cluster.reserve(0, 63, 64)
    cluster.reserve(0, 3, MIB)
    with pytest.raises(RequestError, match="overlaps"):
        cluster.reserve(0, 3, 64, offset=MIB - 64)
    with pytest.raises(RequestError, match="lines of 64"):
        cluster.reserve(0, 4, 64, offset=32)
    with pytest.raises(RequestError, match="bytes: -1 found"):
        cluster.reserve(0, 4, -1)


def test_buffers_must_be_contiguous_and_writable(cluster: Cluster) -> None:
    cluster.reserve(0, 0, MIB)
    with pytest.raises(RequestError, match="contiguous"):
        cluster.write(0, 0, 0, np.zeros((8, 8))[:, ::2])
    with pytest.raises(RequestError, match="contiguous"):
        cluster.read_into(0, 0, 0, bytes(8))
    with pytest.raises(RequestError, match="more than the board has"):
        cluster.read(0, 0, 0, 1 << 50)
    with pytest.raises(RequestError, match=r"board 1: the cluster has boards 0\.\.0"):
        cluster.read(1, 0, 0, 8)


def test_a_closed_cluster_says_so() -> None:
    cluster = Cluster.open(boards=2, overlay=OVERLAY, kernels="numpy")
    cluster.close()
    cluster.close()
    with pytest.raises(TransportError, match="closed"):
        cluster.read(0, 0, 0, 1)
    with pytest.raises(TransportError, match="closed"):
        cluster.stats()


def test_all_boards_are_opened_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Emulated] = []
    uri = Emulated.uri

    def last_is_missing(self: Emulated, board: int) -> str:
        made.append(self)
        return "emu:999999/0" if board == 3 else uri(self, board)

    monkeypatch.setattr(Emulated, "uri", last_is_missing)
    with pytest.raises(LoraError, match="no emulated cluster 999999"):
        Cluster.open(boards=4, overlay=OVERLAY, kernels="numpy")
    with pytest.raises(RequestError, match="no such fault"):  # the emulated cluster is gone too
        made[0].fault(0, 0)


def test_the_boards_go_when_nothing_refers_to_them() -> None:
    cluster = Cluster.open(overlay=OVERLAY, kernels="numpy")
    assert cluster.emulated is not None
    finalizers = cluster._handle._finalizer, cluster.emulated._finalizer
    assert all(finalizer.alive for finalizer in finalizers)
    del cluster
    gc.collect()
    assert not any(finalizer.alive for finalizer in finalizers)


def test_an_overlay_for_another_board_kind_is_refused_by_the_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import dataclasses

    from lora_host.boards import load_board

    with Cluster.open(overlay=OVERLAY, kernels="numpy") as cluster:
        cluster.overlay = dataclasses.replace(OVERLAY, board=load_board("v80"))
        cluster.overlay.__dict__["image"] = OVERLAY.image
        with pytest.raises(OverlayError, match="board kind 0x80 found, 0x280 expected"):
            cluster._program(0)
        cluster.overlay = dataclasses.replace(OVERLAY, abi=9)
        cluster.overlay.__dict__["image"] = OVERLAY.image
        with pytest.raises(OverlayError, match=f"ABI 0x9 found, {abi.ABI_NUMBER:#x} expected"):
            cluster._program(0)


def test_unknown_kernels_and_faults_are_refused(cluster: Cluster) -> None:
    with pytest.raises(RequestError, match=r"did you mean 'numpy'\?"):
        Cluster.open(overlay=OVERLAY, kernels="numpi")
    if cluster.emulated is not None:
        with pytest.raises(RequestError, match="no such fault"):
            cluster.emulated.fault(0, 99)
        with pytest.raises(RequestError, match=r"boards 0\.\.0"):
            cluster.emulated.fault(1, 0)
        with pytest.raises(RequestError, match="no such port"):
            cluster.emulated.link_bytes(0, 2)
