"""Builds `lora_host._lora` once more, into a folder of its own: emulated boards whose control is
simulated hardware (tests/rtl/core/board_control.cpp) in place of the firmware's host build, or
whose frames are traced (tests/rtl/card)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.checkout_build import checkout_build
from tests.rtl.bench_rig import build
from tests.rtl_rig import ROOT

LIMIT_SECONDS = {"core": 600, "card": 7200}  # a control that hangs lets nothing end
IMAGE = ROOT / "overlays" / "lora_f_u280" / "firmware.bin"
# Verilator's runtime has 32 KiB of thread-local data. glibc keeps less free for a module
# that is loaded late and wants its own at fixed places.
TUNABLES = "glibc.rtld.optional_static_tls=65536"
# tests/rtl/card/frame_trace.c
TRACED = "-Wl,--wrap=emu_wire_before,--wrap=emu_gather_direct"


def newest(paths: list[Path]) -> float:
    """When the last of them was changed."""
    return max(path.stat().st_mtime for path in paths)


def compile_into(folder: Path, control: Path, flags: str) -> Path:
    """The finished module's path in `folder`. `flags`: of the linker."""
    os.environ["LDFLAGS"] = flags
    builder = checkout_build().make_builder(absolute=True, control=control)
    with tempfile.TemporaryDirectory(prefix="boards-", dir=folder) as work:
        made = Path(builder.compile(tmpdir=work, verbose=False))
        arriving = folder / f".{made.name}.{os.getpid()}"
        shutil.copy2(made, arriving)
    target = folder / made.name
    os.replace(arriving, target)
    return target


def simulated_boards(rig: str = "core", archive: Path | None = None) -> Path:
    """The module with the control of tests/rtl/core or the firmware and trace of tests/rtl/card,
    built where it is missing or older than its sources. `archive`: another one than theirs."""
    archive = archive or build(rig, "libboards.a")
    folder = archive.parent / "boards"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        parts = [path for name in ("csrc", "firmware") for path in (ROOT / name).rglob("*.[ch]")]
        since = newest([*parts, archive, ROOT / "host" / "lora_host" / "ffi_build.py"])
        for found in folder.glob("**/_lora.*.so"):
            if found.stat().st_mtime > since:
                return found
        return compile_into(folder, archive, TRACED if rig == "card" else "")


def in_process(
    arguments: Sequence[str], rig: str = "core", archive: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`python ARGUMENTS`, which finds the module by simulated_boards, with further environment
    variables."""
    places = [str(ROOT / name) for name in ("sdk", "host", ".")]
    made = {
        "LORA_TEST_MODULE": str(simulated_boards(rig, archive)),
        "LORA_TEST_IMAGE": str(IMAGE),
        "GLIBC_TUNABLES": TUNABLES,
        "PYTHONPATH": os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **made, **(variables or {})},
        capture_output=True, text=True, timeout=LIMIT_SECONDS[rig],
    )  # fmt: skip


def ask(
    request: dict[str, Any], rig: str = "core", archive: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What tests/rtl/boards_run.py answers."""
    arguments = ["-m", "tests.rtl.boards_run", json.dumps(request)]
    done = in_process(arguments, rig, archive, variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
