"""How many products a second this machine's cores make at most, by type of number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lora_host import native
from lora_host.errors import TransportError

Arithmetic = Literal["fp32", "int8"]
PASSES, TRIES = 400, 5  # each try some 5 ms


@dataclass(frozen=True)
class Peak:
    """Products a second, and the fastest loop's name."""

    loop: str
    products_per_second: float


def peak(arithmetic: Arithmetic, threads: int) -> Peak:
    """Of the fastest loop that this machine can run on `threads`. TransportError if the system
    gives no threads."""
    lib, ffi = native.lib(), native.ffi()
    wanted = {"fp32": lib.LORA_BENCH_FP32, "int8": lib.LORA_BENCH_INT8}[arithmetic]
    kind = ffi.new("enum lora_bench_arithmetic *")
    found: list[Peak] = []
    index = 0
    while (name := lib.lora_bench_loop(index, kind)) != ffi.NULL:
        if kind[0] == wanted and lib.lora_bench_loop_supported(index):
            rate = max(lib.lora_bench_products(threads, PASSES, index) for _ in range(TRIES))
            found.append(Peak(ffi.string(name).decode(), rate))
        index += 1
    best = max(found, key=lambda one: one.products_per_second)
    if not best.products_per_second:
        raise TransportError(f"measuring arithmetic on {threads} threads failed: no threads")
    return best
