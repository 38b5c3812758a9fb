"""The sums of matmuls by CUDA kernels (cuda_source.py), launched through the CUDA driver on torch's
stream. Opening compares it with plain torch operations."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lora_host.errors import RequestError
from lora_sdk.prefill.exact.cuda_source import KERNELS, SOURCE
from lora_sdk.prefill.exact.matrices import Products, TorchProducts
from lora_sdk.prefill.exact.nvrtc import compile_ptx, newest_architecture

UNIT = 32
MAX_ROWS = 65535 * 32  # of a grid
SHAPES = ((1, 32, 8, 32), (5, 70, 33, 32), (37, 288, 70, 96), (65, 1024, 130, 128))
"""Rows, K, columns and group (of K in whole groups) of the comparison."""


class CudaProducts:
    """Products (see matrices.py) by kernels."""

    def __init__(self, device: torch.device) -> None:
        """RequestError: no NVRTC or driver, a card without integer dot products, or kernels that
        give other bytes than plain operations."""
        self._device = device
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < (6, 1):
            raise RequestError(
                f"prefill: {device} has compute capability {major}.{minor}; its kernels need 6.1 "
                f"or newer; use 'torch:{device}'"
            )
        ptx = compile_ptx(SOURCE, newest_architecture(major * 10 + minor))
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes torch's context the thread's
            self._driver = _driver()
            self._module = _loaded(self._driver, ptx)
            self._functions = {
                name: _function(self._driver, self._module, name) for name in KERNELS
            }
        compare(self, device)

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        if x.dim() != 2:
            return TorchProducts().floats(x, w)
        y = torch.empty((len(x), w.shape[1]), dtype=torch.float32, device=x.device)
        grid = (-(-w.shape[1] // 64), -(-len(x) // 64))
        operands = [x.contiguous(), w.contiguous(), y]
        self._launch("half_products", grid, 256, operands, [len(x), len(w), w.shape[1]])
        return y

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        x, columns = _whole_units(x), _whole_units(w.t())
        y = torch.empty((len(x), len(columns)), dtype=torch.float32, device=x.device)
        sizes = [len(x), x.shape[1], len(columns)]
        self._launch("byte_products", _warps(y), 128, [x, columns, y], sizes)
        return y

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """See Products."""
        x, columns = x.contiguous(), w.t().contiguous()
        y = torch.empty((len(x), len(columns)), dtype=torch.float32, device=x.device)
        sizes = [len(x), x.shape[1], len(columns), group]
        operands = [x, columns, scales.contiguous(), y]
        self._launch("group_products", _warps(y), 128, operands, sizes)
        return y

    def _launch(
        self,
        name: str,
        grid: tuple[int, int],
        threads: int,
        tensors: Sequence[Tensor],
        sizes: Sequence[int],
    ) -> None:
        if grid[1] > MAX_ROWS // 32:
            raise RequestError(f"{name}: {tensors[0].shape[0]} rows; expected at most {MAX_ROWS}")
        values: list[Any] = [ctypes.c_void_p(one.data_ptr()) for one in tensors]
        values += [ctypes.c_int(size) for size in sizes]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
            code = self._driver.cuLaunchKernel(
                self._functions[name], *grid, 1, threads, 1, 1, 0, stream, pointers, None
            )
        _check(code, f"launch {name}")


def compare(found: Products, device: torch.device) -> None:
    """RequestError names a kernel that gives other bytes than plain torch operations."""
    plain, draw = TorchProducts(), torch.Generator().manual_seed(5)
    for rows, k, columns, group in SHAPES:
        x, w = (
            torch.randn(shape, generator=draw).to(torch.float16).to(device)
            for shape in ((rows, k), (k, columns))
        )
        x8 = torch.randint(-127, 128, (rows, k), generator=draw, dtype=torch.int8).to(device)
        w8 = torch.randint(-128, 128, (columns, k), generator=draw, dtype=torch.int8).to(device).t()
        results = {
            "half_products": (found.floats(x, w), plain.floats(x, w)),
            "byte_products": (found.bytes(x8, w8), plain.bytes(x8, w8)),
        }
        if k % group == 0:
            w4 = torch.div(w8, 9, rounding_mode="trunc")  # -14 .. 14
            scales = torch.rand((k // group, columns), generator=draw).to(torch.float16).to(device)
            given = (x8, w4, scales, group)
            results["group_products"] = (found.groups(*given), plain.groups(*given))
        for name, (got, want) in results.items():
            if got.cpu().numpy().tobytes() != want.cpu().numpy().tobytes():
                raise RequestError(
                    f"prefill: the CUDA kernel {name} gives other bytes on {device} than plain "
                    f"operations for {rows} rows, K {k}; use 'torch:{device}', and report it"
                )


def _warps(y: Tensor) -> tuple[int, int]:
    """Blocks of 32 rows and 16 columns."""
    return -(-y.shape[1] // 16), -(-y.shape[0] // 32)


def _whole_units(x: Tensor) -> Tensor:
    """Rows of int8 with K in whole units; zeros change no sum."""
    return pad(x, (0, -x.shape[1] % UNIT)).contiguous()


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
