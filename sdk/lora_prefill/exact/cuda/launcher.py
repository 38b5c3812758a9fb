"""Kernels compiled for a card and launched through the CUDA driver on torch's stream."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import torch

from lora_host.errors import RequestError
from lora_prefill.exact.cuda.arguments import Argument, packed
from lora_prefill.exact.cuda.source import KERNELS, SOURCE
from lora_prefill.exact.nvrtc import compile_ptx, newest_architecture

OLDEST = (6, 1)  # integer dot products
Grid = tuple[int, int, int]


class Launcher(Protocol):
    """Runs kernels of the source."""

    multiprocessors: int

    def launch(self, name: str, grid: Grid, threads: int, *given: Argument) -> None:
        """`grid`: blocks, of `threads` each. `given`: the kernel's arguments."""


class CudaLauncher:
    """A Launcher of a torch device."""

    def __init__(self, device: torch.device) -> None:
        """RequestError: no NVRTC or driver, or a card without integer dot products."""
        self._index = torch.cuda.current_device() if device.index is None else device.index
        capability = torch.cuda.get_device_capability(device)
        if capability < OLDEST:
            found, oldest = (".".join(map(str, one)) for one in (capability, OLDEST))
            raise RequestError(
                f"prefill: {device} has compute capability {found}; its kernels need {oldest} or "
                f"newer; use 'torch:{device}'"
            )
        self.multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        ptx = compile_ptx(SOURCE, newest_architecture(capability[0] * 10 + capability[1]))
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes torch's context the thread's
            self._driver = _driver()
            self._module = _loaded(self._driver, ptx)
            self._functions = {
                name: _function(self._driver, self._module, name) for name in KERNELS
            }

    def launch(self, name: str, grid: Grid, threads: int, *given: Argument) -> None:
        """See Launcher."""
        if torch.cuda.current_device() == self._index:
            self._run(name, grid, threads, given)
        else:
            with torch.cuda.device(self._index):
                self._run(name, grid, threads, given)

    def _run(self, name: str, grid: Grid, threads: int, given: tuple[Argument, ...]) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._index).cuda_stream)
        code = self._driver.cuLaunchKernel(
            self._functions[name], *grid, threads, 1, 1, 0, stream, packed(given), None
        )
        _check(code, f"launch {name}")


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RequestError(f"prefill: the CUDA driver cannot be loaded: {error}") from None


def _loaded(driver: Any, ptx: bytes) -> Any:
    module = ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), ptx + b"\0"), "load the kernels")
    return module


def _function(driver: Any, module: Any, name: str) -> Any:
    function = ctypes.c_void_p()
    found = driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    _check(found, f"find {name}")
    return function


def _check(code: int, what: str) -> None:
    if code:
        raise RequestError(f"prefill: the CUDA driver cannot {what}: error {code}")
