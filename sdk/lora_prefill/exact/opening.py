"""From a worker's name to a device and its kernels."""

from __future__ import annotations

from functools import cache, partial

import torch

from lora_prefill.exact.device import open_device
from lora_prefill.exact.kernels import Kernels, TorchKernels
from lora_sdk.opening.worker_name import WorkerName


def open_kernels(name: WorkerName) -> tuple[torch.device, Kernels]:
    """RequestError: torch has no such device, it rounds otherwise than the boards, or kernels that
    the name asks for cannot be made or give other bytes."""
    assert name.device is not None
    device = open_device(name.device)
    if not name.kernels:
        return device, TorchKernels()
    return device, _cuda_kernels(device)


@cache
def _cuda_kernels(device: torch.device) -> Kernels:
    """Made and compared once in a process, which takes seconds."""
    from lora_prefill.exact.cuda.comparison import compare
    from lora_prefill.exact.cuda.kernels import CudaKernels
    from lora_prefill.exact.cuda.launcher import CudaLauncher

    launcher = CudaLauncher(device)
    with torch.inference_mode():
        compare(partial(CudaKernels, launcher), device)
    return CudaKernels(launcher)
