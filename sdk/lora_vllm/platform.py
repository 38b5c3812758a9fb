"""The platform that vLLM runs on where boards are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.platforms.interface import Platform, PlatformEnum

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class LoraPlatform(Platform):
    """One worker, which runs all boards. vLLM's own tensors stay in this computer's memory."""

    _enum = PlatformEnum.OOT
    device_name = "lora-fpga"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    simple_compile_backend = "eager"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """What vLLM may believe of the weights; boards have their own arithmetic."""
        return [torch.float16, torch.bfloat16, torch.float32]

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Limits of the boards. ValueError: what they do not support."""
        from vllm.config import CompilationMode, CUDAGraphMode

        from lora_host.errors import LoraError
        from lora_vllm.limits import apply_limits

        compilation = vllm_config.compilation_config
        compilation.mode = CompilationMode.NONE
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        if vllm_config.model_config is None:
            return
        try:
            apply_limits(vllm_config)
        except LoraError as error:
            raise ValueError(str(error)) from error

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """What vLLM prints."""
        return cls.device_name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """0: vLLM chooses defaults by it, and the boards' limits follow later."""
        return 0

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """No device reads this computer's memory."""
        return False

    @classmethod
    def inference_mode(cls) -> Any:
        """No tensor needs a gradient."""
        return torch.no_grad()

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Nothing: there is one worker."""

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Nothing: vLLM's sampler uses this computer's generators."""

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """Weights lie on boards."""
        return 0.0

    @classmethod
    def import_kernels(cls) -> None:
        """None are needed."""
