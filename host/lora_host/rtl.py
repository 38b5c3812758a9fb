"""The card's simulated units (`kernels="rtl"`): a separate library next to this file, built from
overlays/rtl with Verilator by `make rtl-build`. docs/rtl.md lists what it simulates."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import abi, native
from .errors import RequestError

LIBRARY = "_lora_rtl.so"  # only in this package's folder
VERSION = 6  # of csrc/rtl/rtl.hpp
SEED = 1  # of the random register contents before reset
BUILD = "build it in a checkout with 'make rtl-build' (it needs Verilator)"


_COUNTS = (
    "simulated", "products", "cycles", "matrix", "vector", "attention", "adapter", "vectors",
    "vector_cycles", "attentions", "attention_cycles", "adapters", "adapter_cycles",
)  # fmt: skip


_PAIR = ctypes.c_uint64 * 2  # simulated, native


class _Counts(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in _COUNTS),
        ("by_weights", _PAIR * 16),
        ("by_operation", _PAIR * 64),
        ("by_cache", _PAIR * 4),
    ]


_WEIGHTS = ("FP16", "INT8", "W4A8", "W4A16")  # of abi.h's weight types
_CACHES = ("FP16", "INT8", "INT8_HEADS")  # of its types of KV cache


@dataclass(frozen=True)
class SimulatedWork:
    """Counts since the library was loaded: matmuls `simulated`, their multiplications (`products`)
    and clock `cycles`; `vectors`, `attentions` and `adapters`, commands of these simulated units,
    and their cycles (what an adapter adds to a matmul is the matmul's); calls of native kernels by
    kind; `operations`, both by name."""

    simulated: int
    products: int
    cycles: int
    matrix: int
    vector: int
    attention: int
    adapter: int
    vectors: int
    vector_cycles: int
    attentions: int
    attention_cycles: int
    adapters: int
    adapter_cycles: int
    operations: Mapping[str, tuple[int, int]]  # calls, simulated and native

    def __str__(self) -> str:
        """Three lines of --stats."""
        return (
            f"simulated: {self.simulated} matmuls, {self.products / 1e6:.1f} M "
            f"products in {self.cycles / 1e6:.1f} M cycles, {self.vectors} vector commands in "
            f"{self.vector_cycles / 1e6:.1f} M cycles, {self.attentions} attention commands in "
            f"{self.attention_cycles / 1e6:.1f} M cycles, {self.adapters} adapter commands in "
            f"{self.adapter_cycles / 1e6:.1f} M cycles; native: {self.matrix} matmuls, "
            f"{self.vector} vector, {self.attention} attention, {self.adapter} adapter calls\n"
            f"in simulated hardware: {self._list(0)}\n"
            f"in native kernels: {self._list(1)}"
        )

    def _list(self, where: int) -> str:
        """Operations that ran there, with their calls."""
        found = [f"{name} {calls[where]}" for name, calls in self.operations.items()]
        return ", ".join(text for text in found if not text.endswith(" 0")) or "none"


def load(path: Path) -> Any:
    """The library at `path`. RequestError if it is missing, not a plain file, cannot be loaded or
    has another version."""
    if path.is_symlink() or not path.is_file():
        raise RequestError(f"kernels 'rtl': {path} is missing or not a plain file; {BUILD}")
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
    """This package's library, loaded once. Errors as in `load`."""
    return load(Path(__file__).resolve().parent / LIBRARY)


@cache
def _others() -> Any:
    """The native kernels' table, at a fixed address."""
    ffi, lib = native.ffi(), native.lib()
    return ffi.new("struct lora_kernels *", lib.lora_kernels_native)


def kernel_table(found: Any = None, seed: int = SEED) -> Any:
    """`struct lora_kernels *` of a loaded library, by default this package's. Native kernels run
    what it does not simulate. `seed`: of the initial register contents. RequestError without the
    library."""
    ffi = native.ffi()
    found = library() if found is None else found
    address = found.lora_rtl_open(int(ffi.cast("uintptr_t", _others())), seed)
    if not address:
        raise RequestError("kernels 'rtl': no memory for the simulated units")
    return ffi.new("struct lora_kernels *", ffi.cast("struct lora_kernels *", address)[0])


def simulated_work(found: Any = None) -> SimulatedWork:
    """Counts so far of this package's library, or of another one."""
    counts = _Counts()
    (library() if found is None else found).lora_rtl_read_counts(ctypes.byref(counts))
    totals: dict[str, Any] = {name: getattr(counts, name) for name in _COUNTS}
    return SimulatedWork(**totals, operations=_operations(counts))


def _operations(counts: _Counts) -> dict[str, tuple[int, int]]:
    """Calls by name."""
    found = {f"matmul {n}": counts.by_weights[getattr(abi, f"WEIGHT_{n}")] for n in _WEIGHTS}
    for number, name in abi.names("VEC_").items():
        found[name.removeprefix("LORA_VEC_").lower()] = counts.by_operation[number]
    found |= {f"attention {n}": counts.by_cache[getattr(abi, f"KV_{n}")] for n in _CACHES}
    calls = {name: (int(pair[0]), int(pair[1])) for name, pair in found.items()}
    return {**calls, "adapter": (counts.adapters, counts.adapter)}
