"""What the C library holds of memory for this process, where it is glibc."""

from __future__ import annotations

import ctypes

_LIBC = ctypes.CDLL(None)
_TRIM = getattr(_LIBC, "malloc_trim", None)
_COUNTS = getattr(_LIBC, "mallinfo2", None)  # since 2.33


class _Counts(ctypes.Structure):
    """struct mallinfo2; `hblkhd`: bytes in maps of their own, `uordblks`: in use beside them."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    )  # fmt: skip


if _COUNTS is not None:
    _COUNTS.restype = _Counts


def give_back() -> None:
    """Free memory to the system, which is kept for later otherwise."""
    if _TRIM is not None:
        _TRIM(0)


def in_use() -> int | None:
    """Bytes that are allocated and not freed, of all threads; None where nobody counts them."""
    if _COUNTS is None:
        return None
    found = _COUNTS()
    return int(found.hblkhd + found.uordblks)
