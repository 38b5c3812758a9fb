"""Builds `lora_host._lora`, the cffi module over the C library, emulated boards and firmware.

`python host/lora_host/ffi_build.py` builds in path_name; setup.py calls `make_builder`. The cdef is
derived from the C headers: constants and structures have one definition (csrc/include/lora).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[2]
HEADERS = (
    "abi",
    "transport",
    "kernels",
    "emu",
    "host",
    "slash",
    "xrt",
    "remote",
    "boardd",
    "pack",
    "bench",
    "sampling",
    "opening",
    "constants",
)
SOURCE_GLOBS = (
    "csrc/src/*.c",
    "csrc/transports/*/*.c",
    "csrc/boardd/*.c",
    "csrc/wire/*.c",
    "csrc/emu/*.c",
    "csrc/kernels/*/*.c",
    "firmware/*.c",
)
CARD_ONLY = {"hal_card.c"}  # the card's HAL, compiled for rv32 only
INCLUDE_FOLDERS = (
    *("csrc/include", "csrc/kernels", "csrc/src", "csrc/emu", "csrc/wire", "csrc/boardd"),
    *(f"csrc/transports/{name}" for name in ("emu", "xrt", "slash", "remote")),
    "firmware",
)
# -ffp-contract=off: a fused multiply-add would change results. No -march=native: wide
# instruction sets are chosen per function at run time.
# -fvisibility=hidden: calls inside the library need no PLT entry.
FLAGS = (
    *("-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-pthread"),
)
NATIVE_KERNELS = "lora_kernels_native"

CALLBACKS = """
extern "Python" int lora_py_matrix(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_vector(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_attention(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_adapter(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_experts(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_recurrence(void *context, struct lora_unit_call *call);
extern "Python" int lora_py_token(void *context, uint32_t token);
extern "Python" int lora_py_cancelled(void *context);
"""


def header_cdef(text: str) -> str:
    """A header for cffi: without comments, includes and the include guard."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = []
    for line in text.splitlines():
        words = line.split()
        is_number = len(words) > 2 and words[0] == "#define"
        if words and (is_number or not words[0].startswith("#")):
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def source_files() -> list[Path]:
    """All C files of the library, sorted, without the card's HAL."""
    files = [path for pattern in SOURCE_GLOBS for path in sorted(ROOT.glob(pattern))]
    return [path for path in files if path.name not in CARD_ONLY]


def has_native_kernels(sources: list[Path]) -> bool:
    """Whether a source defines the native kernel table."""
    return any(
        re.search(rf"\b{NATIVE_KERNELS}\s*=", path.read_text())
        for path in sources
        if path.parent.parent.name == "kernels"
    )


def header_names(native: bool) -> tuple[str, ...]:
    """The headers, each after its dependencies. `native` adds the native kernels' header."""
    return (*HEADERS, "native") if native else HEADERS


def cdef_text(native: bool) -> str:
    """The complete cdef. `native` adds the table of native kernels."""
    folder = ROOT / "csrc" / "include" / "lora"
    parts = [header_cdef((folder / f"{name}.h").read_text()) for name in header_names(native)]
    return "".join(parts) + CALLBACKS


def make_builder(absolute: bool = False, control: Path | None = None) -> FFI:
    """The cffi builder. Paths are relative to the current folder, as setuptools expects, or
    absolute for a build in another folder. `control`: a C++ archive that takes the firmware's
    place; tests simulate a board's control in it."""
    sources = source_files()
    if control:
        sources = [path for path in sources if path.parent != ROOT / "firmware"]
    native = has_native_kernels(sources)
    preamble = "".join(f'#include "lora/{name}.h"\n' for name in header_names(native))

    def path_name(path: Path) -> str:
        return str(path) if absolute else os.path.relpath(path)

    builder = FFI()
    builder.cdef(cdef_text(native))
    builder.set_source(
        "lora_host._lora",
        preamble,
        sources=[path_name(path) for path in sources],
        include_dirs=[path_name(ROOT / folder) for folder in INCLUDE_FOLDERS],
        extra_compile_args=list(FLAGS),
        extra_link_args=["-pthread"],
        extra_objects=[str(control)] if control else [],
        libraries=["m", "dl", *(["stdc++"] if control else [])],
    )
    return builder


def build_in_place() -> Path:
    """Compiles into a temporary folder and installs the finished module atomically, so that a
    running program or a second build never sees a partial file. Returns the module's path."""
    target_folder = ROOT / "host" / "lora_host"
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ffi-", dir=ROOT / "build") as folder:
        built = Path(make_builder(absolute=True).compile(tmpdir=folder, verbose=False))
        arriving = target_folder / f".{built.name}.{os.getpid()}"
        shutil.copy2(built, arriving)
    target = target_folder / built.name
    os.replace(arriving, target)
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{build_in_place()}\n")
