"""The compiled module `lora_host._lora`, loaded at first use and checked against this package."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .errors import OverlayError

ABI_NUMBER = 5  # of this Python code; the library's must be equal

# Sizes documented in abi.h: a library that was compiled with another layout is refused.
_SIZES = {
    "lora_arena_record": 32,
    "lora_completion": 128,
    "lora_error_record": 64,
    "lora_router_record": 32,
    "lora_image_header": 32,
    "lora_command": 64,
    "lora_matrix": 64,
    "lora_experts": 64,
    "lora_recurrence": 64,
    "lora_chosen": 8,
    "lora_vector": 64,
    "lora_attention": 64,
    "lora_kv_store": 64,
    "lora_kv_commit": 64,
    "lora_gather": 64,
    "lora_move_rows": 64,
    "lora_argmax": 8,
    "lora_list": 256,
    "lora_row": 64,
    "lora_kv_op": 16,
    "lora_step": 64,
    "lora_frame": 32,
    "lora_link_test_port": 32,
    "lora_trace_record": 40,
}


@cache
def _module() -> Any:
    try:
        module = import_module("lora_host._lora")
    except ImportError as cause:
        raise OverlayError(
            f"lora_host._lora: the C library cannot be loaded ({cause}); "
            "build it with 'pip install .' or 'make ext'"
        ) from cause
    found = int(module.lib.LORA_ABI_NUMBER)
    if found != ABI_NUMBER:
        raise OverlayError(
            f"lora_host._lora: ABI {found} found, {ABI_NUMBER} expected; rebuild with 'make ext'"
        )
    for name, size in _SIZES.items():
        compiled = module.ffi.sizeof(f"struct {name}")
        if compiled != size:
            raise OverlayError(
                f"lora_host._lora: struct {name} has {compiled} bytes, {size} expected; "
                "rebuild with 'make ext'"
            )
    return module


@cache
def ffi() -> Any:
    """cffi's `ffi` of the library. OverlayError if it is not built or has another ABI."""
    return _module().ffi


@cache
def lib() -> Any:
    """cffi's `lib` of the library. OverlayError if it is not built or has another ABI."""
    return _module().lib
