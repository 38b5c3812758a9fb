"""What must be found by whom: each kind of fault, and how its detection is turned off, so that a
campaign must fail. A further kind is a row here, or a reason in BENIGN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lora_host import abi, native
from lora_host.overlay import Overlay
from lora_host.records import timeout_record
from lora_sdk.loading.weights import Loader
from lora_sdk.recovery.scrubber import Scrubber

Switch = Callable[[Any, pytest.MonkeyPatch], None]  # a rig's engine


def _boards(engine: Any, kind: int, *numbers: int) -> None:
    for board in range(engine.cluster.size):
        engine.cluster.emulated.fault(board, kind, *numbers)


def _blind(*bits: int) -> Switch:
    return lambda engine, patch: _boards(engine, abi.FAULT_BLIND, sum(bits))


def _without_ecc(engine: Any, patch: pytest.MonkeyPatch) -> None:
    _boards(engine, abi.FAULT_ECC_OFF)


def _unchecked_records(engine: Any, patch: pytest.MonkeyPatch) -> None:
    engine.cluster._handle.call("leave_unchecked", 1)


def _without_limits(engine: Any, patch: pytest.MonkeyPatch) -> None:
    """A board has an hour for a step, and its firmware too."""
    handle = engine.cluster._handle
    record = timeout_record({"step_us": 3_600_000_000, "watchdog_ms": 3_000_000})
    assert native.lib().lora_cluster_set_timeouts(handle._alive(), record) == abi.OK


def _without_sums(engine: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scrubber, "advance", lambda self: False)
    patch.setattr(Scrubber, "prove", lambda self: False)


def _without_sums_of_loading(engine: Any, patch: pytest.MonkeyPatch) -> None:
    _without_sums(engine, patch)
    patch.setattr(Loader, "check", lambda self: None)
    patch.setattr(Loader, "damaged", lambda self: [])


def _any_configuration(engine: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "link_configuration_mask", property(lambda self: 0))


def _all_of(*switches: Switch) -> Switch:
    def switch(engine: Any, patch: pytest.MonkeyPatch) -> None:
        for one in switches:
            one(engine, patch)

    return switch


FRAMES = _blind(abi.BLIND_FRAME_CRC, abi.BLIND_DIGESTS)
DIGESTS = _blind(abi.BLIND_DIGESTS)
STATES = _blind(abi.BLIND_UNIT_STATES, abi.BLIND_DIGESTS)
TRANSFERS = _blind(abi.BLIND_TRANSFERS)
WATCHDOGS, RECORDS, SUMS = _without_limits, _unchecked_records, _without_sums
LOADED, CONFIGURATION = _without_sums_of_loading, _any_configuration
ECC = _all_of(_without_ecc, _without_sums)
ROUTER = _all_of(STATES, WATCHDOGS)


@dataclass(frozen=True)
class Detection:
    """`switch` turns it off. Faults strike in `phase`."""

    switch: Switch
    phase: str = "decode"


OFF: dict[str, Detection] = {
    "bit flipped on a link": Detection(FRAMES),
    "bits flipped without end": Detection(FRAMES),
    "block garbled, CRC right": Detection(DIGESTS),
    "blocks filed wrongly": Detection(DIGESTS),
    "frame lost": Detection(WATCHDOGS),
    "MPU stuck": Detection(WATCHDOGS),
    "VFU stuck": Detection(WATCHDOGS),
    "Router stuck": Detection(WATCHDOGS),
    "DMA stuck": Detection(WATCHDOGS),
    "MPU fails": Detection(STATES),
    "MPU loses a command": Detection(STATES),
    "VFU fails": Detection(STATES),
    "VFU loses a command": Detection(STATES),
    "DMA fails": Detection(STATES),
    "DMA loses a command": Detection(STATES),
    "record lost": Detection(RECORDS),
    "record of another step": Detection(RECORDS),
    "record of an old epoch": Detection(RECORDS),
    "done lost": Detection(WATCHDOGS),
    "start lost": Detection(WATCHDOGS),
    "firmware halts": Detection(WATCHDOGS),
    "read fails": Detection(TRANSFERS),
    "write fails": Detection(TRANSFERS),
    "bit of a weight flipped": Detection(SUMS, "prefill"),
    "weights of a board ruined": Detection(SUMS, "prefill"),
    "bit of a weight, with ECC": Detection(ECC),
    "two bits of a weight, with ECC": Detection(ECC),
    "two bits of K and V, with ECC": Detection(ECC),
    "Router fails": Detection(ROUTER),
    "Router loses a command": Detection(ROUTER),
    "links configured wrongly": Detection(CONFIGURATION, "links"),
    "bit of an adapter flipped": Detection(SUMS, "adapter load"),
    "transfer lost": Detection(LOADED, "load"),
    "transfer misplaced": Detection(LOADED, "load"),
}
"""Kinds by what finds them. Without it a text is wrong, a run has no end, or nobody notices."""

BENIGN: dict[str, str] = {
    "frame sent twice": "a frame at a place that is filled already changes nothing",
    "frames reordered": "each frame says where it belongs",
    "frame of an old epoch": "it holds what the new one holds; as lost, see there",
    "frame delayed": "the limits leave it time",
    "lane down": "two find it: the link's status, and the watchdog of the frames that are lost",
    "ports swapped": "two find it: places of frames, and digests",
    "MPU slow": "the limits leave it time",
    "VFU slow": "the limits leave it time",
    "DMA slow": "the limits leave it time",
    "done too early": "harmless where the record is there in time; else as a lost record",
    "firmware resets": "several find it: lists, numbers of steps, limits",
    "sequencer stalls": "the limits leave it time",
    "registers read as ones": "several find it: records, identities, links",
    "board leaves the bus": "every access fails: there is nothing to go on with",
    "board leaves and returns": "every access fails: there is nothing to go on with",
    "board's clock jumps": "time alone: the watchdog ends a step that was right",
    "transfer cut short": "as lost; of those drawn, this model's text needs no second half",
    "transfer twice": "the bytes are the same unless another transfer is between",
    "bit of a command list flipped": "the firmware's seal, held by tests/c/test_firmware_lists.c",
    "bit of K and V, with ECC": "as of a weight: nothing says whether a run reads the place",
    "bit of a command list, with ECC": "the list's seal finds it as well",
    "two bits of a command list, with ECC": "the list's seal finds it as well",
    "bit of control tables, with ECC": "nothing says whether a run reads the place",
    "two bits of control tables, with ECC": "nothing says whether a run reads the place",
}
"""Kinds without one switch, and why."""
