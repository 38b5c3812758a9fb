"""The NumPy kernels: the bit-exact reference of the units (docs/numbers.md, 1 to 7), called by
the emulated units."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from lora_host import abi
from lora_host.emu.adapter import adapter
from lora_host.emu.attention import attention
from lora_host.emu.matrix import matrix
from lora_host.emu.mixture import experts
from lora_host.emu.recurrent import recurrence
from lora_host.emu.unit_call import UnitCall
from lora_host.emu.vector import vector
from lora_host.numerics import quiet

KERNELS: dict[str, Callable[[UnitCall], None]] = {
    "matrix": matrix,
    "vector": vector,
    "attention": attention,
    "adapter": adapter,
    "experts": experts,
    "recurrence": recurrence,
}
_OK, _ERR_UNIT = abi.OK, abi.ERR_UNIT
_failures: list[str] = []


def run_kernel(ffi: Any, name: str, call: Any) -> int:
    """Runs kernel `name` on a struct lora_unit_call. Returns LORA_OK, or LORA_ERR_UNIT after an
    exception, whose traceback `take_failure` returns."""
    try:
        with quiet():
            KERNELS[name](UnitCall(ffi, call, name))
    except Exception:
        _failures.append(traceback.format_exc())
        return _ERR_UNIT
    return _OK


def take_failure() -> str:
    """Traceback of the first kernel that failed since the last call, "" when none did."""
    text = _failures[0] if _failures else ""
    _failures.clear()
    return text


def register(ffi: Any, lib: Any) -> Any:
    """Binds the kernels to the extension's callbacks. Returns a struct lora_kernels * for C, valid
    as long as it is referenced."""

    def bind(name: str) -> Any:
        def callback(_context: Any, call: Any) -> int:
            return run_kernel(ffi, name, call)

        ffi.def_extern(name=f"lora_py_{name}", error=_ERR_UNIT)(callback)
        return getattr(lib, f"lora_py_{name}")

    table = ffi.new("struct lora_kernels *")
    table.size = ffi.sizeof("struct lora_kernels")
    table.context = ffi.NULL
    table.name = _text(ffi)
    for name in KERNELS:
        setattr(table, name, bind(name))
    return table


_kept: dict[int, Any] = {}


def _text(ffi: Any) -> Any:
    """The kernels' name for --stats, kept until the process ends."""
    return _kept.setdefault(id(ffi), ffi.new("char[]", b"numpy"))
