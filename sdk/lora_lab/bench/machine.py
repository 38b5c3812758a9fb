"""A description of this computer, printed beside what was measured on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from lora_sdk.spec.machine_name import cpu_fields, processor

_EXTENSIONS = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")


def describe_machine() -> dict[str, str | int | list[str]]:
    """Processor, cores of the process, instruction sets, memory in bytes, kernel and Python."""
    flags = set(cpu_fields().get("flags", "").split())
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _EXTENSIONS if name in flags],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def free_memory() -> int:
    """Bytes that programs can still take without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
