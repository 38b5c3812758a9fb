"""Checks what this computer lacks for real boards, with a command to fix each problem."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..boards import load_board
from ..errors import LoraError
from ..lock import lock_folder
from ..xrt_environment import LIBRARY_FOLDERS
from . import slash
from .inventory import BoardView, pci_boards
from .software_emulation import driver_library
from .source_tree import made_in_tree

OK, NOTE, MISSING = "ok", "note", "missing"
_PINNED = 64 << 20  # bytes that a runtime pins for its queues and bounce buffers


@dataclass(frozen=True)
class Finding:
    """One result. `state`: ok, note or missing; `cure`: a command that fixes it, or ""."""

    state: str
    thing: str
    found: str
    cure: str = ""


@dataclass(frozen=True)
class Machine:
    """The computer to check; tests use a file tree of their own. `loads`: whether a library can be
    loaded."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    loads: Callable[[str], bool] = lambda name: _loads(name)

    def path(self, name: str) -> Path:
        """A path of the computer."""
        return self.root / name.lstrip("/")

    @property
    def boards(self) -> list[BoardView]:
        """Boards on the PCI bus."""
        return pci_boards(self.path("/sys/bus/pci/devices"))

    @property
    def modules(self) -> set[str]:
        """Kernel modules that are loaded."""
        try:
            lines = self.path("/proc/modules").read_text().splitlines()
        except OSError:
            return set()
        return {line.split()[0] for line in lines if line.strip()}

    @property
    def container(self) -> bool:
        """Whether this is a container, which sees only the device nodes given to it."""
        return any(self.path(name).exists() for name in ("/.dockerenv", "/run/.containerenv"))


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def examine(machine: Machine | None = None) -> list[Finding]:
    """All results, in the order in which problems should be fixed."""
    machine = machine or Machine()
    boards = machine.boards
    kinds = {board.board for board in boards}
    findings = [_library(), _bus(boards)]
    socket = Path(slash.socket_path())
    if "v80" in kinds or socket.exists():
        findings += _v80(machine, boards, socket)
    if any(load_board(kind).shell for kind in kinds) or "XILINX_XRT" in machine.environment:
        findings += _xrt(machine, boards)
    else:
        found = "XILINX_XRT is unset; boards named xrt: need it, cards also AMD's driver"
        findings.append(Finding(NOTE, "XRT", found, _xrt_cure(machine)))
    findings += [*_shells(boards), _pinned(), _locks(), *_simulators()]
    return findings


def _library() -> Finding:
    from .. import native

    try:
        native.lib()
    except LoraError as error:
        cure = made_in_tree("pip install --force-reinstall .")
        return Finding(MISSING, "C library", str(error), cure)
    return Finding(OK, "C library", f"ABI {native.ABI_NUMBER}")


def _simulators() -> list[Finding]:
    """Libraries of simulated hardware, which nobody has to have."""
    from .. import rtl, sim

    findings = []
    things = (("simulated units", rtl, "rtl-build"), ("simulated cards", sim, "sim-build"))
    for thing, module, target in things:
        try:
            module.library()
        except LoraError as error:
            found = str(error).partition(": ")[2].rpartition("; ")[0]
            wants = f"{found}; nothing but --kernels rtl and sim: boards needs it"
            cure = f"{made_in_tree(f'make {target}')}, with Verilator 5.006"
            findings.append(Finding(NOTE, thing, wants, cure))
        else:
            findings.append(Finding(OK, thing, f"{module.LIBRARY}, version {module.VERSION}"))
    return findings


def _bus(boards: list[BoardView]) -> Finding:
    if boards:
        return Finding(OK, "boards on the PCI bus", ", ".join(b.uri for b in boards))
    return Finding(
        NOTE, "boards on the PCI bus", "none; emulated ones run without any",
        "lspci -d 10ee: shows what the computer sees; power off and seat the card if nothing",
    )  # fmt: skip


def _v80(machine: Machine, boards: list[BoardView], socket: Path) -> list[Finding]:
    findings = []
    for board in boards:
        if board.board == "v80" and not board.driver:
            findings.append(
                Finding(MISSING, f"{board.uri}: driver", "none bound", "sudo modprobe slash")
            )
    if not socket.exists():
        cure = "sudo systemctl enable --now vrtd"
        if machine.container:
            cure = f"give the container the socket: -v {socket}:{socket}"
        return [*findings, Finding(MISSING, "vrtd", f"no socket {socket}", cure)]
    if not os.access(socket, os.R_OK | os.W_OK):
        group = _group(socket)
        cure = f"sudo usermod -aG {group} $USER, then log in anew"
        return [*findings, Finding(MISSING, "vrtd", f"no right to use {socket}", cure)]
    try:
        served = slash.devices()
    except LoraError as error:
        return [*findings, Finding(MISSING, "vrtd", str(error), "sudo systemctl restart vrtd")]
    found = ", ".join(bdf for bdf, _ in served) or "no board"
    state = OK if served else MISSING
    return [*findings, Finding(state, "vrtd", f"serves {found}", "" if served else "v80-smi list")]


def _group(path: Path) -> str:
    import grp

    try:
        return grp.getgrgid(path.stat().st_gid).gr_name
    except (OSError, KeyError):
        return "the socket's group"


def _xrt(machine: Machine, boards: list[BoardView]) -> list[Finding]:
    findings = []
    alveo = [board for board in boards if load_board(board.board).shell]
    if alveo and "xocl" not in machine.modules:
        findings.append(Finding(MISSING, "driver xocl", "not loaded", "sudo modprobe xocl"))
    elif alveo:
        findings.append(Finding(OK, "driver xocl", "loaded"))
    folder = machine.environment.get("XILINX_XRT", "")
    found = f"XILINX_XRT={folder or 'unset'}"
    library = driver_library(machine.environment)
    if not folder or not Path(folder).is_dir():
        findings.append(Finding(MISSING, "XRT", found, _xrt_cure(machine)))
    elif not os.access(Path(folder, "lib", library), os.R_OK):
        found += f", which has no lib/{library}"
        findings.append(Finding(MISSING, "XRT", found, _xrt_cure(machine)))
    else:
        alone = "" if "xocl" in machine.modules else ", for emulation alone: no driver is loaded"
        findings.append(Finding(OK, "XRT", found + alone))
    name = "libxrt_coreutil.so.2"
    if machine.loads(name):
        findings.append(Finding(OK, "runtime library", name))
    else:
        findings.append(
            Finding(MISSING, "runtime library", f"{name} cannot be loaded", "sudo apt install "
                    "libxrt1, or AMD's xrt package")
        )  # fmt: skip
    return findings + ([_nodes(machine)] if alveo else [])


def _xrt_cure(machine: Machine) -> str:
    """How XILINX_XRT is set, with the runtime that is installed."""
    if machine.path("/opt/xilinx/xrt/setup.sh").is_file():
        return "source /opt/xilinx/xrt/setup.sh"
    for folder in LIBRARY_FOLDERS:
        if machine.path(f"{folder}/{driver_library(machine.environment)}").is_file():
            if folder.endswith("/lib"):
                return f"export XILINX_XRT={Path(folder).parent}"
            return f"mkdir -p ~/xrt && ln -sfn {folder} ~/xrt/lib && export XILINX_XRT=~/xrt"
    return "sudo apt install libxrt1, or AMD's xrt package, and run lora doctor again"


def _nodes(machine: Machine) -> Finding:
    nodes = sorted(machine.path("/dev/dri").glob("renderD*"))
    if not nodes:
        cure = "sudo modprobe xocl"
        if machine.container:
            cure = "give the container the nodes: --device /dev/dri --device /dev/xclmgmt*"
        return Finding(MISSING, "device nodes", "no /dev/dri/renderD*", cure)
    closed = [n for n in nodes if not os.access(n, os.R_OK | os.W_OK)]
    if closed:
        cure = f"sudo usermod -aG {_group(closed[0])} $USER, then log in anew"
        return Finding(MISSING, "device nodes", f"no right to use {closed[0].name}", cure)
    return Finding(OK, "device nodes", ", ".join(n.name for n in nodes))


def _shells(boards: list[BoardView]) -> list[Finding]:
    """Boards of a cluster need the same shell: the one that the overlays are linked against."""
    kinds = sorted({board.board for board in boards if board.shell})
    if not kinds:
        return [Finding(OK, "same shell on all boards", "none to compare")]
    return [found for kind in kinds for found in _shells_of(kind, boards)]


def _shells_of(kind: str, boards: list[BoardView]) -> list[Finding]:
    shells = {b.uri: b.shell for b in boards if b.shell and b.board == kind}
    facts = load_board(kind).shell
    platform = "" if facts is None else facts.card
    cure = "sudo xbmgmt program --base --device BDF"
    thing = f"same shell on every {kind}"
    if len(set(shells.values())) > 1:
        found = ", ".join(f"{uri} {shell}" for uri, shell in shells.items())
        return [Finding(MISSING, thing, found, cure)]
    shell = next(iter(shells.values()))
    findings, thing = [Finding(OK, thing, shell)], f"shell of the {kind} overlays"
    if _plain(shell) != _plain(platform):
        expected = f"{shell} found, {platform} expected; containers of others may fit it"
        return [*findings, Finding(MISSING, thing, expected, cure)]
    return [*findings, Finding(OK, thing, platform)]


def _plain(shell: str) -> str:
    """A normalized name: drivers write xilinx:u280:gen3x16_xdma:base:1 or use underscores."""
    return re.sub(r"[^a-z0-9]+", "_", shell.lower())


def _pinned() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or soft >= _PINNED:
        found = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 20} MiB"
        return Finding(OK, "pinned memory", found)
    return Finding(
        NOTE, "pinned memory", f"{soft >> 10} KiB, {_PINNED >> 20} MiB are of use",
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/lora.conf",
    )  # fmt: skip


def _locks() -> Finding:
    folder = lock_folder()
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Finding(OK, "locks", str(folder))
    return Finding(MISSING, "locks", f"{folder} cannot be written", f"mkdir -p {folder}")
