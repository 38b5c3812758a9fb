"""What the option `--prefill` of pytest names: the exact worker under test, and on a GPU also where
the fast one runs."""

from __future__ import annotations

from typing import Any

DEFAULT = "torch:cpu"
chosen = DEFAULT


def opened() -> tuple[Any, Any]:
    """Its torch device, and its kernels."""
    from lora_prefill.exact.opening import open_kernels
    from lora_sdk.opening.worker_name import parse_worker

    return open_kernels(parse_worker(chosen, False))


def fast_device() -> str:
    """The option's GPU, else the CPU."""
    device = chosen.removeprefix("torch:")
    return device if device.startswith("cuda") else "cpu"
