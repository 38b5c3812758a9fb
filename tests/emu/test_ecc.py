"""ECC of emulated boards' memory: one wrong bit of a word is corrected and counted, two fail the
read, and the engine goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import LoraError, TransportError
from lora_host.overlay import load_overlay
from lora_lab.torture.campaign import Campaign
from lora_lab.torture.faults import Fault, Run
from lora_lab.torture.folders import write_folders
from lora_lab.torture.rig import Rig

BANK, OFFSET, BYTES = 3, 4096, 4096
WORD = OFFSET // 8 + 5
DATA = bytes(range(256)) * 16


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.open(boards=2, overlay=load_overlay("lora_f_u280")) as opened:
        opened.reserve(1, opened.overlay.control_bank, 1 << 16, 0)
        opened.reserve(1, BANK, BYTES, OFFSET)
        opened.write(1, BANK, OFFSET, DATA)
        yield opened


def plant(cluster: Cluster, kind: int, word: int = WORD, bit: int = 11) -> None:
    assert cluster.emulated is not None
    cluster.emulated.fault(1, kind, BANK, word, bit)


def counts(cluster: Cluster, board: int = 1) -> tuple[dict[int, int], dict[int, int]]:
    found = cluster.ecc(board)
    assert found is not None
    return dict(found.corrected), dict(found.uncorrected)


def test_one_wrong_bit_is_corrected_and_counted_by_bank(cluster: Cluster) -> None:
    plant(cluster, abi.FAULT_ECC_SINGLE)
    assert cluster.read(1, BANK, OFFSET, BYTES) == DATA
    assert cluster.checksum(1, BANK, OFFSET, BYTES) == cluster.checksum(1, BANK, OFFSET, BYTES)
    assert counts(cluster) == ({BANK: 3}, {}) and counts(cluster, 0) == ({}, {})
    assert cluster.read(1, BANK, OFFSET, 40) == DATA[:40]  # the word is behind it
    assert counts(cluster) == ({BANK: 3}, {})
    cluster.write(1, BANK, OFFSET, DATA)
    assert cluster.read(1, BANK, OFFSET, BYTES) == DATA
    assert counts(cluster) == ({BANK: 3}, {})


def test_two_wrong_bits_fail_the_read_and_name_board_bank_and_address(cluster: Cluster) -> None:
    plant(cluster, abi.FAULT_ECC_DOUBLE)
    named = r"board 1 .*bank 3 offset 0x1028: .*two wrong bits"
    with pytest.raises(TransportError, match=named) as e:
        cluster.read(1, BANK, OFFSET, BYTES)
    assert e.value.failure is not None
    assert (e.value.failure.status, e.value.failure.bank) == ("LORA_ERR_ECC", BANK)
    with pytest.raises(TransportError, match=r"board 1 .* unit DMA: bank 3 offset 0x1028"):
        cluster.checksum(1, BANK, OFFSET, BYTES)  # by the board's own DMA unit
    assert counts(cluster) == ({}, {BANK: 2})
    cluster.write(1, BANK, WORD * 8 + 4, b"half")  # by way of the old value
    with pytest.raises(LoraError, match="two wrong bits"):
        cluster.read(1, BANK, OFFSET, BYTES)
    cluster.write(1, BANK, WORD * 8, b"thewhole")
    assert cluster.read(1, BANK, WORD * 8, 8) == b"thewhole"


def test_a_reset_does_not_heal_a_word(cluster: Cluster) -> None:
    """Its line is written once the board has its memory again: then it can be read."""
    plant(cluster, abi.FAULT_ECC_DOUBLE)
    with pytest.raises(LoraError, match="two wrong bits"):
        cluster.read(1, BANK, OFFSET, BYTES)
    cluster.reset()
    found = cluster.read(1, BANK, OFFSET, BYTES)
    line = WORD * 8 // 64 * 64 - OFFSET
    assert found[line : line + 64] == bytes(64)
    assert found[:line] + found[line + 64 :] == DATA[:line] + DATA[line + 64 :]


def test_a_board_without_ecc_gives_wrong_bits(cluster: Cluster) -> None:
    plant(cluster, abi.FAULT_ECC_OFF)
    plant(cluster, abi.FAULT_ECC_DOUBLE)
    found = cluster.read(1, BANK, OFFSET, BYTES)
    wrong = int.from_bytes(found, "little") ^ int.from_bytes(DATA, "little")
    assert wrong.bit_count() == 2 and counts(cluster) == ({}, {})


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(write_folders(tmp_path_factory.mktemp("ecc")))
    yield rig
    rig.close()


@pytest.mark.parametrize("what", ["a weight", "K and V", "a command list", "control tables"])
@pytest.mark.parametrize("phase", ["decode", "own loop"])
def test_engines_go_on(rig: Rig, what: str, phase: str) -> None:
    """Many places: some are read in the run, some are not."""
    campaign = Campaign(rig, minimise=False)
    met = {"bit": 0, "two bits": 0}
    for how in met:
        for place in range(0, 60, 7):
            run = Run(1, phase, 2, (Fault(f"{how} of {what}, with ECC", 1, 1, (place, 9)),))
            verdict = campaign.verdict(run)
            assert not verdict.problems, verdict
            met[how] += verdict.noticed
    assert all(met.values()) or what == "control tables", met
