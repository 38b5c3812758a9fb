"""From a worker's name to a device and its sums of matmuls."""

from __future__ import annotations

import torch

from lora_sdk.core.worker_name import WorkerName
from lora_sdk.prefill.exact.device import open_device
from lora_sdk.prefill.exact.matrices import Products, TorchProducts


def open_products(name: WorkerName) -> tuple[torch.device, Products]:
    """RequestError: torch has no such device, it rounds otherwise than the boards, or kernels that
    the name asks for cannot be made or give other bytes."""
    assert name.device is not None
    device = open_device(name.device)
    if not name.kernels:
        return device, TorchProducts()
    from lora_sdk.prefill.exact.cuda_products import CudaProducts

    return device, CudaProducts(device)
