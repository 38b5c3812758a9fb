"""Bring-up of links: both ends, configuration, payload, and the cabling map."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.cluster_file import Cable, ring
from lora_host.errors import LinkError, LoraError, RequestError
from lora_host.overlay import load_overlay
from tests.transports import Transport

OVERLAY = load_overlay("lora_f_u280")
TOPOLOGIES = Path(__file__).parents[1] / "topologies"


@pytest.fixture
def four(transport: Transport) -> Iterator[Cluster]:
    with transport.open(4) as cluster:
        yield cluster


Plant = Callable[..., None]


@pytest.fixture
def fault(transport: Transport, four: Cluster) -> Plant:
    """Plants a fault on one of the four boards."""
    return partial(transport.fault, four)


@pytest.mark.parametrize("name", ["single", "pair", "ring4", "ring8", "path4", "broken4"])
def test_every_shipped_cabling_comes_up_as_it_is(name: str) -> None:
    path = TOPOLOGIES / f"{name}.yaml"
    with Cluster.open(cluster_file=path, overlay=OVERLAY, kernels="numpy") as cluster:
        cluster.links_up(cluster.cables)
        for cable in cluster.cables:
            for end in ((cable.board_a, cable.port_a), (cable.board_b, cable.port_b)):
                status = cluster.link_status(*end)
                assert status.healthy and status.frames_received > 0
                assert status.frames_with_errors == 0


@pytest.mark.light(transport=("emu",))
def test_the_payload_test_leaves_memory_as_it_was(four: Cluster) -> None:
    kept = bytes(range(256)) * 16
    for board in range(4):
        four.reserve(board, OVERLAY.control_bank, 1 << 16)
        four.write(board, OVERLAY.control_bank, abi.CONTROL_PAGE, kept)
    four.links_up(four.cables)
    for board in range(4):
        assert four.read(board, OVERLAY.control_bank, abi.CONTROL_PAGE, len(kept)) == kept


@pytest.mark.light(transport=("emu",))
def test_links_can_come_up_before_anything_is_reserved(four: Cluster) -> None:
    four.links_up(four.cables)
    four.reserve(0, OVERLAY.control_bank, 1 << 20)  # the test's own arena is gone


def raises(cluster: Cluster, cables: tuple[Cable, ...]) -> LoraError:
    with pytest.raises(LinkError) as caught:
        cluster.links_up(cables)
    fields = caught.value.failure
    assert fields is not None and "\n" not in str(caught.value)
    for board, port in ((fields.board, fields.port), (fields.peer_board, fields.peer_port)):
        assert re.search(rf"board {board} \(\w+:\S+\) port {port}\b", str(caught.value))
    return caught.value


def test_a_link_that_stays_down_names_both_ends_and_the_symptom(
    four: Cluster, fault: Plant
) -> None:
    fault(2, abi.FAULT_LINK_DOWN, 1)
    error = raises(four, four.cables)
    assert error.failure is not None and error.failure.status == "LORA_ERR_LINK_STATUS"
    ends = {(error.failure.board, error.failure.port)}
    ends.add((error.failure.peer_board, error.failure.peer_port))
    assert ends == {(2, 1), (3, 0)}
    assert "0x11ff expected" in str(error) and "lanes down" in str(error)


def test_wrong_framing_or_width_is_found_against_the_manifest(four: Cluster, fault: Plant) -> None:
    fault(1, abi.FAULT_LINK_CONFIG, 0, OVERLAY.link_configuration & ~abi.LINK_FRAMING)
    error = raises(four, four.cables)
    assert "framing off and width 32 B; the manifest has framing on and width 32 B" in str(error)
    assert error.failure is not None and (error.failure.board, error.failure.port) == (1, 0)
    fault(1, abi.FAULT_LINK_CONFIG, 0, 0x3 | 64 << 2)
    assert "width 64 B" in str(raises(four, four.cables))
    fault(1, abi.FAULT_LINK_CONFIG, 0, OVERLAY.link_configuration | 1 << 20)
    four.links_up(four.cables)  # bits outside the mask do not matter


@pytest.mark.light(kind=("FAULT_LINK_GARBLE",))
@pytest.mark.parametrize("kind", ["FAULT_LINK_GARBLE", "FAULT_LINK_FLIP"])
def test_wrong_bytes_are_found_by_payload(four: Cluster, fault: Plant, kind: str) -> None:
    fault(3, getattr(abi, kind), 1, 10, 1)
    error = raises(four, four.cables)
    assert error.failure is not None and error.failure.status == "LORA_ERR_LINK_PAYLOAD"
    ends = {error.failure.board, error.failure.peer_board}
    assert ends == {3, 0} and "of them wrong" in str(error)
    fault(3, abi.FAULT_NONE, 0)
    four.links_up(four.cables)


@pytest.mark.light(cables=((Cable(0, 1, 2, 0),),))
@pytest.mark.parametrize(
    ("cables", "received"),
    [
        ((Cable(0, 1, 3, 0), Cable(2, 1, 1, 0)), 2),  # two cables swapped: all answer
        ((Cable(0, 1, 2, 0),), 2),  # no answer until the free ports are queried too
    ],
)
def test_a_cable_in_another_board_is_named(
    four: Cluster, cables: tuple[Cable, ...], received: int
) -> None:
    error = raises(four, cables)
    assert error.failure is not None and error.failure.status == "LORA_ERR_LINK_CABLING"
    serial = four.infos[received - 1].serial
    assert f"board 0's end receives serial {serial} port 0" in str(error)
    four.links_up(four.cables)


def test_a_cable_in_the_other_port_is_named() -> None:
    path = TOPOLOGIES / "pair.yaml"
    with Cluster.open(cluster_file=path, overlay=OVERLAY, kernels="numpy") as pair:
        error = raises(pair, (Cable(0, 0, 1, 1),))
        assert error.failure is not None and error.failure.status == "LORA_ERR_LINK_STATUS"


@pytest.mark.light(message=("board 0 port 2",))
@pytest.mark.parametrize(
    ("cables", "message"),
    [
        ((Cable(0, 1, 4, 0),), "board 4 port 0; boards 0..3"),
        ((Cable(0, 2, 1, 0),), "board 0 port 2"),
        ((Cable(0, 1, 1, 0), Cable(2, 1, 1, 0)), "board 1 port 0 has a cable already"),
        ((Cable(0, 1, 0, 0),), "both ends on board 0"),
        ((Cable(-1, 1, 0, 0),), "board_a: -1 found"),
        ((*ring(64), Cable(0, 0, 1, 0)), "65 cables, at most 64"),
    ],
)
def test_impossible_cables_are_refused(
    four: Cluster, cables: tuple[Cable, ...], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        four.links_up(cables)


@pytest.mark.light(transport=("emu",))
def test_another_overlays_width_is_refused(four: Cluster) -> None:
    links = dataclasses.replace(OVERLAY.links, port_bytes=64)
    four.overlay = dataclasses.replace(OVERLAY, links=links)
    assert "width 32 B; the manifest has framing on and width 64 B" in str(raises(four, ring(4)))
