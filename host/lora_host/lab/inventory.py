"""Boards of this computer, from the PCI bus and the runtimes, and the processes that use them."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import abi
from ..card import SYSFS, board_of_shell, pci_board
from ..errors import LoraError
from ..lock import holder, program_name
from ..overlay import Overlay, load_overlay, overlay_names
from ..xclbin import read_xclbin
from . import slash, xocl
from .bare_links import COUNTERS, ERRORS
from .software_emulation import emulated_boards


@dataclass(frozen=True)
class PortView:
    """A link port's status register, and its counters of errors by name."""

    port: int
    status: int
    healthy: bool
    errors: dict[str, int] = field(default_factory=dict)


@dataclass
class BoardView:
    """One board. `overlay`: "" if nothing is loaded or it is unknown; the uuid of another project's
    container. `banks` and `cores`: those of any container. `holder`: id of the process that holds
    the board."""

    uri: str
    board: str
    driver: str = ""
    overlay: str = ""
    abi: int | None = None
    serial: int | None = None
    banks: list[str] = field(default_factory=list)
    cores: list[str] = field(default_factory=list)
    shell: str = ""
    links: list[PortView] = field(default_factory=list)
    sensors: dict[str, str] = field(default_factory=dict)
    holder: int | None = None
    holder_name: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def pci_boards(sysfs: Path = SYSFS) -> list[BoardView]:
    """Boards on the PCI bus, by BDF."""
    found = []
    for entry in sorted(sysfs.glob("*")) if sysfs.is_dir() else []:
        board = pci_board(entry)
        if board is None:
            continue
        driver = entry / "driver"
        name = driver.resolve().name if driver.exists() else ""
        view = BoardView(f"{board.runtime}:{entry.name}", board.name, name)
        if board.runtime == "xrt":
            _add_driver_data(view, entry)
        found.append(view)
    return found


def _add_driver_data(view: BoardView, folder: Path) -> None:
    """Adds the driver's data on an Alveo board."""
    view.shell, view.sensors = xocl.shell(folder), xocl.sensors(folder)
    try:
        held = xocl.loaded(folder)
        if held is None:
            return
        view.banks, view.cores = list(held.banks), list(held.cores)
        view.overlay = f"another (uuid {held.uuid})"
        for overlay in _overlays(view.board):
            if overlay.container and str(read_xclbin(overlay.container).uuid) == held.uuid:
                view.overlay, view.abi = overlay.name, overlay.abi
    except LoraError as error:
        view.problem = str(error)


def _overlays(board: str) -> list[Overlay]:
    overlays = [load_overlay(name) for name in overlay_names()]
    return [overlay for overlay in overlays if overlay.board.name == board]


def _identify(view: BoardView, bdf: str) -> None:
    """Adds the overlays whose ABI and firmware match the registers. There may be several."""
    overlays = _overlays("v80")
    for control in dict.fromkeys(overlay.block_base for overlay in overlays):
        found = slash.identity(bdf, control[0])
        if found is None:
            continue
        view.abi, view.serial = found.abi, found.serial
        fit = [
            overlay.name
            for overlay in overlays
            if (overlay.block_base, overlay.abi, overlay.image_crc)
            == (control, found.abi, found.firmware_crc)
        ]
        view.overlay = " or ".join(fit) or f"another (firmware {found.firmware_crc:#010x})"
        for port, base in enumerate(control[1:]):
            view.links.append(_port(port, bdf, base))
        return


def _port(port: int, bdf: str, base: int) -> PortView:
    first = abi.LINK_STATUS
    words = slash.peek(bdf, base + first, (abi.LINK_FRAMES_WITH_ERRORS - first) // 4 + 1)
    errors = {name: words[(COUNTERS[name] - first) // 4] for name in ERRORS}
    return PortView(port, words[0], words[0] == abi.LINK_HEALTHY, errors)


def slash_boards() -> list[BoardView]:
    """The V80 boards that vrtd serves. TransportError without vrtd."""
    views = []
    for bdf, _name in slash.devices():
        view = BoardView(f"slash:{bdf}", "v80", "vrtd")
        try:
            _identify(view, bdf)
            for sensor in slash.sensors(bdf):
                view.sensors[sensor.name] = f"{sensor.value:g} {sensor.unit}"
        except LoraError as error:
            view.problem = str(error)
        views.append(view)
    return views


def inventory(sysfs: Path = SYSFS) -> list[BoardView]:
    """All boards of this computer: those on the bus, completed with their runtime's data, and those
    that XRT emulates for this process."""
    views = {view.uri: view for view in pci_boards(sysfs)}
    has_slash = (
        any(view.board == "v80" for view in views.values()) or Path(slash.socket_path()).exists()
    )
    if has_slash:
        try:
            for view in slash_boards():
                _replace(views, view)
        except LoraError as error:
            for view in views.values():
                if view.board == "v80":
                    view.problem = str(error)
    for uri, platform in emulated_boards(os.environ):
        views[uri] = BoardView(
            uri, board_of_shell(platform) or "", "software emulation", shell=platform
        )
    for view in views.values():
        view.holder = holder(view.uri)
        view.holder_name = program_name(view.holder) if view.holder else ""
    return list(views.values())


def _replace(views: dict[str, BoardView], view: BoardView) -> None:
    """Merges views of one board: vrtd uses another PCI function in its name."""
    slot = view.uri.rpartition(".")[0]
    for uri in [uri for uri in views if uri.rpartition(".")[0] == slot]:
        view.driver = views.pop(uri).driver or view.driver
    views[view.uri] = view
