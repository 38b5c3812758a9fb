"""The simulated units of the card (`kernels="rtl"`): a library of its own beside this file, which
`make rtl-build` makes from overlays/rtl with Verilator. docs/rtl.md says what runs in it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import native
from .errors import RequestError

LIBRARY = "_lora_rtl.so"  # in this package's folder and nowhere else
VERSION = 1  # of csrc/rtl/rtl.hpp
SEED = 1  # of the bits in registers before reset
BUILD = "build it in a checkout with 'make rtl-build' (it needs Verilator)"


_COUNTS = ("simulated", "products", "cycles", "matrix", "vector", "attention", "adapter")


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _COUNTS]


@dataclass(frozen=True)
class SimulatedWork:
    """Since the library was loaded: matmuls `simulated`, their `products` and clock `cycles`; calls
    that the native kernels took, by kind."""

    simulated: int
    products: int
    cycles: int
    matrix: int
    vector: int
    attention: int
    adapter: int

    def __str__(self) -> str:
        """One line of --stats."""
        return (
            f"simulated: {self.simulated} FP16 matmuls, {self.products / 1e6:.1f} M products in "
            f"{self.cycles / 1e6:.1f} M cycles; native: {self.matrix} matmuls, {self.vector} "
            f"vector, {self.attention} attention, {self.adapter} adapter calls"
        )


def load(path: Path) -> Any:
    """The library at `path`. RequestError when it is missing, is no plain file, cannot be loaded or
    is of another version."""
    if path.is_symlink() or not path.is_file():
        raise RequestError(f"kernels 'rtl': {path} is not there, or is no plain file; {BUILD}")
    try:
        found = ctypes.CDLL(str(path))
        found.lora_rtl_version.restype = ctypes.c_uint32
        version = int(found.lora_rtl_version())
    except (OSError, AttributeError) as cause:
        raise RequestError(f"kernels 'rtl': {path} cannot be loaded ({cause}); {BUILD}") from cause
    if version != VERSION:
        raise RequestError(
            f"kernels 'rtl': {path} has version {version}, {VERSION} expected; {BUILD}"
        )
    found.lora_rtl_open.restype = ctypes.c_void_p
    found.lora_rtl_open.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    found.lora_rtl_read_counts.argtypes = (ctypes.POINTER(_Counts),)
    found.lora_rtl_memory.argtypes = (ctypes.c_uint32, ctypes.c_uint32)
    return found


@cache
def library() -> Any:
    """The library of this package, loaded once; errors as `load`."""
    return load(Path(__file__).resolve().parent / LIBRARY)


@cache
def _others() -> Any:
    """The native kernels' table, at an address that stays."""
    ffi, lib = native.ffi(), native.lib()
    return ffi.new("struct lora_kernels *", lib.lora_kernels_native)


def kernel_table(found: Any = None, seed: int = SEED) -> Any:
    """`struct lora_kernels *` of a loaded library, this package's at first; the native kernels do
    what it cannot. Registers begin with bits made from `seed`. RequestError without the library."""
    ffi = native.ffi()
    found = library() if found is None else found
    address = found.lora_rtl_open(int(ffi.cast("uintptr_t", _others())), seed)
    if not address:
        raise RequestError("kernels 'rtl': no memory for the simulated units")
    return ffi.new("struct lora_kernels *", ffi.cast("struct lora_kernels *", address)[0])


def simulated_work(found: Any = None) -> SimulatedWork:
    """What has run where so far, in this package's library or another one."""
    counts = _Counts()
    (library() if found is None else found).lora_rtl_read_counts(ctypes.byref(counts))
    return SimulatedWork(*(getattr(counts, name) for name in _COUNTS))
