"""NVRTC, NVIDIA's compiler as a library: source to PTX. It needs no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
OPTIONS = ("--std=c++14", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""No product is fused with a sum unless the source says so."""


def compile_ptx(source: str, architecture: int) -> bytes:
    """PTX for cards of compute capability `architecture`, e.g. 80, or newer. RequestError: NVRTC is
    not installed, or refuses the source."""
    library = load()
    if library is None:
        raise RequestError(
            "CUDA kernels need NVRTC, which is not installed; install torch with CUDA, or "
            "nvidia-cuda-nvrtc-cu12, or use 'torch:cuda:0'"
        )
    program = ctypes.c_void_p()
    name = b"lora_prefill.cu"
    made = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name, 0, None, None)
    _check(library, made, "create a program")
    try:
        options = [f"--gpu-architecture=compute_{architecture}", *OPTIONS]
        given = (ctypes.c_char_p * len(options))(*(one.encode() for one in options))
        if library.nvrtcCompileProgram(program, len(options), given):
            log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
            first = log.decode(errors="replace").strip().splitlines() or ["no message"]
            raise RequestError(f"NVRTC refuses the CUDA kernels: {first[0]:.200}")
        return _text(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def newest_architecture(limit: int) -> int:
    """The newest that NVRTC knows, at most `limit`: PTX runs on newer cards, too."""
    library = load()
    count = ctypes.c_int()
    if library is None or library.nvrtcGetNumSupportedArchs(ctypes.byref(count)):
        return limit
    known = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(known)
    return max((one for one in known if one <= limit), default=limit)


@cache
def load() -> Any | None:
    """The library; None where it is not installed."""
    for path in _paths():
        try:
            if Path(path).is_absolute():  # NVRTC opens its other part by name, without a folder
                for part in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
                    ctypes.CDLL(str(part))
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _paths() -> Iterator[str]:
    """Of the packages that come with torch, then of the system."""
    found = find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        for name in NAMES[:2]:
            yield from map(str, sorted(Path(folder).glob(f"*/lib/{name}")))
    yield from NAMES


def _text(size_of: Any, read: Any, program: Any) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.raw[: max(0, size.value - 1)]


def _check(library: Any, code: int, what: str) -> None:
    if code:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RequestError(f"NVRTC cannot {what}: {library.nvrtcGetErrorString(code).decode()}")
