"""Selects the boards of a cluster, with their serial numbers and cables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .card import possible_kinds
from .cluster_file import (
    BoardEntry,
    Cable,
    ClusterFile,
    check_cables,
    load_cluster,
    ring,
)
from .device_uri import is_emulated, is_model, is_simulated
from .errors import OverlayError, RequestError
from .naming import counted
from .overlay import Overlay


@dataclass(frozen=True)
class Selection:
    """The boards to open. `why`: one line for the user on why they were selected."""

    boards: tuple[BoardEntry, ...]
    cables: tuple[Cable, ...]
    why: str


def board_kind(devices: Sequence[str], cluster_file: str | Path | None) -> str:
    """Kind of the first named board, the first of several that it may be; "u280" if none is named.
    RequestError for an invalid URI or cluster file."""
    uris = list(devices)
    if cluster_file is not None:
        uris = [entry.uri for entry in load_cluster(cluster_file).boards]
    return possible_kinds(uris[0])[0] if uris else "u280"


def check_spares(
    spares: Sequence[str],
    devices: Sequence[str],
    cluster_file: str | Path | None,
    kind: str,
) -> None:
    """RequestError for a spare that cannot stand in for one of the boards, which are of `kind`."""
    uris = list(devices)
    if cluster_file is not None:
        uris = [entry.uri for entry in load_cluster(cluster_file).boards]
    emulated = is_emulated(uris[0]) if uris else True
    simulated = bool(uris) and is_simulated(uris[0])
    for uri in spares:
        found = possible_kinds(uri)
        same = is_emulated(uri) == emulated and is_simulated(uri) == simulated
        if kind not in found or not same:
            expected = "a simulated" if simulated else "an emulated" if emulated else "a real"
            raise RequestError(
                f"spare {uri}: a {' or '.join(found)}; expected {expected} {kind} like the others"
            )
        if not emulated and uri in devices:
            raise RequestError(f"spare {uri} is one of the devices; name a board beside them")
        if cluster_file is not None and uri not in uris:
            raise RequestError(f"spare {uri} is not in {cluster_file}; add it with its cables")


def spare_entries(spares: Sequence[str], boards: int) -> list[BoardEntry]:
    """Entries of spares that stand in for one of `boards` boards. Emulated ones get serial numbers
    that no other board has."""
    return list(_entries(spares, boards + 1))


def default_overlay(devices: Sequence[str], cluster_file: str | Path | None) -> str:
    """Name of the LORA-F overlay for the first named board, used without a model."""
    return f"lora_f_{board_kind(devices, cluster_file)}"


def check_one_source(devices: Sequence[str], cluster_file: str | Path | ClusterFile | None) -> None:
    """RequestError if both name boards."""
    if cluster_file is not None and devices:
        raise RequestError("devices and a cluster file were both given; the file names the devices")


def select(
    boards: int | None,
    devices: Sequence[str],
    cluster_file: str | Path | ClusterFile | None,
    overlay: Overlay,
) -> Selection:
    """The boards that the options name. RequestError if the options contradict each other,
    OverlayError if a board is not of the overlay's kind."""
    check_one_source(devices, cluster_file)
    if cluster_file is not None:
        chosen = _from_file(cluster_file, boards)
    elif devices:
        chosen = _from_devices(devices, boards)
    else:
        chosen = _emulated(1 if boards is None else boards, overlay)
    check_kinds(chosen.boards, overlay)
    if len({is_model(entry.uri) for entry in chosen.boards}) > 1:
        raise RequestError("emulated and real boards were named; use one kind in a cluster")
    if len({is_emulated(entry.uri) for entry in chosen.boards}) > 1:
        raise RequestError(
            "emulated boards of this process and of a daemon were named; no cable joins them"
        )
    if len({is_simulated(entry.uri) for entry in chosen.boards}) > 1:
        raise RequestError(
            "emulated boards and simulated cards were named; use one kind in a cluster"
        )
    return chosen


def check_kinds(boards: Sequence[BoardEntry], overlay: Overlay) -> None:
    """OverlayError if a board is not of the overlay's kind."""
    for board, entry in enumerate(boards):
        kinds = possible_kinds(entry.uri)
        if overlay.board.name not in kinds:
            raise OverlayError(
                f"board {board} ({entry.uri}): a {' or '.join(kinds)} found, overlay "
                f"{overlay.name} is for a {overlay.board.name}; take another board or overlay"
            )


def stands_for_many(devices: Sequence[str]) -> bool:
    """Whether one URI was named that any number of boards may have: that of emulated ones."""
    return len(devices) == 1 and is_emulated(devices[0])


def _entries(uris: Sequence[str], first: int = 1) -> tuple[BoardEntry, ...]:
    """Boards by URI; emulated ones have serial numbers from `first` on."""
    return tuple(
        BoardEntry(uri, serial if is_emulated(uri) else None)
        for serial, uri in enumerate(uris, first)
    )


def _emulated(boards: int, overlay: Overlay) -> Selection:
    cables = ring(boards)
    uri = f"emu:{overlay.board.name}"
    plural = "s" if boards > 1 else ""
    return Selection(
        _entries([uri] * boards),
        cables,
        f"{boards} emulated {overlay.board.name} board{plural}: no device or cluster file names "
        "real ones",
    )


def _from_devices(devices: Sequence[str], boards: int | None) -> Selection:
    if boards is not None and stands_for_many(devices):
        devices = [*devices] * boards
    if boards is not None and boards != len(devices):
        asked, named = counted(boards, "board"), counted(len(devices), "device")
        raise RequestError(f"{asked} requested, but {named} named")
    return Selection(_entries(devices), ring(len(devices)), "as named by device")


def _from_file(source: str | Path | ClusterFile, boards: int | None) -> Selection:
    file = source if isinstance(source, ClusterFile) else load_cluster(source)
    count = len(file.boards) if boards is None else boards
    if not 1 <= count <= len(file.boards):
        raise RequestError(
            f"{file.name}: {counted(len(file.boards), 'board')} found, {count} requested"
        )
    chosen = file.only(range(count))
    check_cables(chosen.cables, count, f"{file.name}: ")
    return Selection(chosen.boards, chosen.cables, f"as named in {chosen.name}")
