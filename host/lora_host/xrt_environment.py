"""An environment in which XRT's software emulation (sw_emu) or noop mode finds emulated boards:
`with XrtEnvironment(boards=4) as environment: run(..., env=environment.variables)`; or, for a
program, `python -m lora_host.xrt_environment --boards 4 -- lora-run --device xrt:0 ...`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .alveo_container import shell_of
from .cluster_file import Cable, ring
from .errors import LoraError, TransportError
from .held_folder import SERVED, STARTING, XRT, HeldFolder, remove_stale
from .overlay import load_overlay

LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/opt/xilinx/xrt/lib")
LIBRARIES = ("core", "noop", "swemu", "hwemu")
MODEL = "data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel"
SOCKET_PATH_LIMIT = 106
_DIED = "a board's device process has died"
XRT_SOCKETS = "/tmp"  # XRT's sockets are in its subfolder $USER, regardless of TMPDIR

# CpuemShim::alloc_void() of 2.13.0 drops realloc's result unless the buffer is absent. The test of
# the old pointer (48 85 c0: test rax,rax) becomes a jump to the branch that keeps the new one.
BUG_OFFSET, BUG_BYTES = 0x9272C, bytes.fromhex("4885c075e6488b bb".replace(" ", ""))
BUG_FIX = bytes.fromhex("ebe290")


class XrtEnvironment:
    """A temporary folder with the files that XRT needs, and environment `variables` that point to
    it. A context manager that removes the folder on exit. `banks`: sizes instead of the board's.
    `cables`: instead of a ring. TransportError if Debian's packages are missing."""

    def __init__(
        self,
        boards: int = 1,
        *,
        overlay: str = "lora_f_u280",
        mode: str = "sw_emu",
        banks: Sequence[str] | None = None,
        cables: Sequence[Cable] | None = None,
    ) -> None:
        source = find_libraries()
        remove_stale(XRT)
        self._held = HeldFolder(XRT)
        self.folder = self._held.path
        try:
            if len(os.path.relpath(self.folder, XRT_SOCKETS)) + 45 > SOCKET_PATH_LIMIT:
                raise TransportError(
                    f"{self.folder}: too long for sockets; set TMPDIR to a short path"
                )
            self._fill(source, boards, overlay, banks)
            # An absolute path: the cluster process may run in another folder.
            self._overlay = str(load_overlay(overlay).path.resolve())
            self.set_cluster(boards, cables)
        except BaseException:
            self._held.remove()
            raise
        self.variables: Mapping[str, str] = {
            **os.environ,
            "XILINX_XRT": str(self.folder / "xrt"),
            "XILINX_VITIS": str(self.folder / "vitis"),
            "XCL_EMULATION_MODE": mode,
            "EMCONFIG_PATH": str(self.folder),
            "SDACCEL_EM_RUN_DIR": str(self.folder / "run"),
            "LORA_EMULATION_DIR": str(self.folder),
            "LORA_LOCK_FOLDER": str(self.folder),  # emulated boards belong to this process
            "USER": os.path.relpath(self.folder, XRT_SOCKETS),  # puts XRT's sockets into the folder
        }

    @property
    def descriptor(self) -> int:
        """For `pass_fds` of a command that may outlive this process: keeps the folder alive."""
        return self._held.descriptor

    def close(self) -> None:
        """Removes everything."""
        self._held.remove()

    def __enter__(self) -> XrtEnvironment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def log(self) -> str:
        """The cluster process's log."""
        path = self.folder / "cluster.log"
        return path.read_text() if path.is_file() else ""

    def dead_processes(self, kind: str) -> int:
        """Number of device processes that have died before (STARTING) or after (SERVED) they handed
        their connection over."""
        left = self.folder.glob(f"{kind}*")
        return sum(not _runs(path.suffix[1:]) for path in left)

    def _fill(self, source: Path, boards: int, overlay: str, banks: Sequence[str] | None) -> None:
        libraries = self.folder / "xrt" / "lib"
        libraries.mkdir(parents=True)
        for name in LIBRARIES:
            library = source / f"libxrt_{name}.so.2"
            if name == "swemu":
                (libraries / library.name).write_bytes(fixed(library))
            elif library.exists():
                (libraries / library.name).symlink_to(library)
        (self.folder / "run").mkdir()
        self._write_model()
        chosen = load_overlay(overlay)
        sizes = banks or [_size(bank.capacity) for bank in chosen.board.banks]
        config = emulation_config(boards, sizes, shell_of(chosen).card)
        (self.folder / "emconfig.json").write_text(json.dumps(config))

    def set_cluster(
        self, boards: int, cables: Sequence[Cable] | None = None, speed: int = 1
    ) -> None:
        """Sets boards and cables (default: a ring) of the next cluster process, which starts when a
        board is opened. `speed`: board seconds per second."""
        chosen = ring(boards) if cables is None else cables
        ends = [(c.board_a, c.port_a, c.board_b, c.port_b) for c in chosen]
        facts = {"boards": boards, "overlay": self._overlay, "cables": ends, "speed": speed}
        (self.folder / "cluster.json").write_text(json.dumps(facts))

    def _write_model(self) -> None:
        model = self.folder / "vitis" / MODEL
        model.parent.mkdir(parents=True)
        package = Path(__file__).resolve().parents[1]
        model.write_text(
            "#!/bin/sh\n"
            f'export PYTHONPATH="{package}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
            'board="${EMULATION_SOCKETID%%_*}"\n'  # device<N>
            'board="${board#device}" folder="$LORA_EMULATION_DIR"\n'
            f'rm -f "$folder/{STARTING}$board".* "$folder/{SERVED}$board".*\n'  # of its last one
            f'touch "$folder/{STARTING}$board.$$"\n'
            f'exec "{sys.executable}" -m lora_host.device_process\n'
        )
        model.chmod(0o755)


def find_libraries() -> Path:
    """Folder of XRT's libraries. TransportError with the packages' names if they are missing."""
    for folder in map(Path, LIBRARY_FOLDERS):
        if all((folder / f"libxrt_{name}.so.2").exists() for name in ("coreutil", "core", "swemu")):
            return folder
    raise TransportError(
        "libxrt_coreutil.so.2, libxrt_swemu.so.2: not found; "
        "apt install libxrt1 libxrt-dev libxrt-utils (XRT 2.13)"
    )


def fixed(library: Path) -> bytes:
    """The library's bytes, patched against a use after free at the first load. Other versions than
    2.13.0 have other bytes there and are returned unchanged."""
    content = bytearray(library.read_bytes())
    end = BUG_OFFSET + len(BUG_BYTES)
    if bytes(content[BUG_OFFSET:end]) == BUG_BYTES:
        content[BUG_OFFSET : BUG_OFFSET + len(BUG_FIX)] = BUG_FIX
    return bytes(content)


def _runs(process: str) -> bool:
    """Whether a process of this number is there and has not ended."""
    try:
        state = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _size(bytes: int) -> str:
    """A size in XRT's format. XRT rejects sizes of more than four digits in M."""
    return f"{bytes >> 30}G" if bytes >= 1 << 30 else f"{bytes >> 20}M"


def emulation_config(boards: int, sizes: Sequence[str], platform: str) -> dict[str, object]:
    """emconfig.json: `boards` cards with this shell and banks of these sizes ("256M")."""
    device = {
        "Name": platform,
        "DataAlignment": "4096",
        "DdrBanks": [{"Size": size} for size in sizes],
        "OclFreqency": "300",  # sic
        "NumDevices": "1",
    }
    board = {"NumBoards": str(boards), "Devices": [device]}
    unified = {"UnifiedPlatform": "true", "ExpandedPR": "true", "Boards": [board]}
    return {"Version": {"FileVersion": "2.0"}, "Platform": unified}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command on emulated boards behind XRT. Returns its exit code, 1 if a signal ended
    it."""
    parser = argparse.ArgumentParser(prog="python -m lora_host.xrt_environment")
    parser.add_argument("--boards", type=int, default=1)
    parser.add_argument("--overlay", default="lora_f_u280")
    parser.add_argument("--mode", choices=("sw_emu", "noop"), default="sw_emu")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)
    command = [word for word in chosen.command if word != "--"] or [os.environ.get("SHELL", "sh")]
    try:
        with XrtEnvironment(chosen.boards, overlay=chosen.overlay, mode=chosen.mode) as environment:
            return _run(command, environment)
    except LoraError as error:
        sys.stderr.write(f"{error}\n")
    except OSError as error:
        sys.stderr.write(f"{command[0]}: cannot be started: {error.strerror}\n")
    return 1


def _run(command: Sequence[str], environment: XrtEnvironment) -> int:
    # A new session: XRT sends SIGTERM to its whole process group.
    child = subprocess.Popen(
        command,
        env=dict(environment.variables),
        start_new_session=True,
        pass_fds=(environment.descriptor,),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    code = child.wait()
    if code == -signal.SIGINT:
        return 128 + signal.SIGINT
    name = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    early, late = environment.dead_processes(STARTING), environment.dead_processes(SERVED)
    if code == 0 or (code > 0 and not early):
        if code and late:  # XRT's exit, or the host's own error
            sys.stderr.write(f"{command[0]}: {name}; {_DIED}\n")
        return code
    if code != -signal.SIGKILL and early + late:
        name += f": {_DIED}, which makes XRT end its host; start it again"
    raise TransportError(f"{command[0]}: {name}")


if __name__ == "__main__":
    sys.exit(main())
