"""Kernels (see exact/kernels.py) in CUDA."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from lora_host.errors import RequestError
from lora_sdk.prefill.exact.attention import Scores
from lora_sdk.prefill.exact.cuda.attending import Attending
from lora_sdk.prefill.exact.cuda.launcher import Launcher

UNIT = 32
FEW = 64  # rows up to which blocks of 32 rows are faster
COLUMNS = 128  # of a block
MAX_BLOCKS = 65535  # of rows, of a grid
MAX_GROUP = 256  # of K: sums of a part stay below 2^22


class CudaKernels:
    """Kernels by a Launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._attending = Attending(launcher)

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        x, w = x.contiguous(), w.contiguous()
        sizes = (len(x), x.shape[1], w.shape[1])
        return self._joined("half_products", "join_products", (x, w), sizes)

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        x, columns = _whole_units(x), _whole_units(w.t())
        sizes = (len(x), x.shape[1], len(columns))
        return self._joined("byte_products", "join_bytes", (x, columns), sizes)

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """See Products."""
        if group > MAX_GROUP:
            raise RequestError(f"groups of {group}; the CUDA kernels take at most {MAX_GROUP}")
        x, columns = _whole_units(x), _whole_units(w.t())
        sizes = (len(x), x.shape[1], len(columns), group)
        given = (x, columns, scales.contiguous())
        return self._joined("group_products", "join_products", given, sizes)

    def squares(self, x: Tensor) -> Tensor:
        """See Kernels."""
        rows = x.contiguous().flatten(0, -2)
        y = _empty(x, len(rows))
        grid = (-(-len(rows) // 8), 1, 1)
        self._launcher.launch("row_squares", grid, 64, rows, y, len(rows), rows.shape[1])
        return y.reshape(x.shape[:-1])

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See Kernels."""
        rows = x.contiguous()
        total, square = _empty(x, len(rows)), _empty(x, len(rows))
        grid = (-(-len(rows) // 8), 1, 1)
        sizes = len(rows), rows.shape[1]
        self._launcher.launch("row_moments", grid, 64, rows, total, square, *sizes)
        return total, square

    def gated_silu(self, x: Tensor) -> Tensor:
        """See Kernels."""
        x, width = x.contiguous(), x.shape[1] // 2
        y = torch.empty((len(x), width), dtype=torch.float16, device=x.device)
        grid = (-(-width // 256), len(x), 1)
        self._launcher.launch("gated_silu", grid, 256, x, y, len(x), width)
        return y

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        """See Kernels."""
        return self._attending.halves(q, k, v, how)

    def attend_int8(self, q: Tensor, k: Tensor, v: Tensor, how: Scores, v_scale: float) -> Tensor:
        """See Kernels."""
        return self._attending.bytes(q, k, v, how, v_scale)

    def _joined(
        self, name: str, join: str, operands: tuple[Tensor, ...], sizes: tuple[int, ...]
    ) -> Tensor:
        """FP32 [rows, columns]. Where blocks are few each has a part of the segments."""
        rows, columns = sizes[0], sizes[2]
        few = rows <= FEW
        down = -(-rows // (32 if few else 128))
        if down > MAX_BLOCKS:
            raise RequestError(f"{name}: {rows} rows; expected at most {MAX_BLOCKS * 128}")
        across = -(-columns // COLUMNS)
        parts = self._parts(down * across)
        y = _empty(operands[0], parts, rows, columns)
        name = f"{name}_32" if few else name
        self._launcher.launch(name, (across, down, parts), 256, *operands, y, *sizes, parts)
        if parts == 1:
            return y[0]
        found = _empty(y, rows, columns)
        grid = (-(-found.numel() // 256), 1, 1)
        self._launcher.launch(join, grid, 256, y, found, parts, found.numel())
        return found

    def _parts(self, blocks: int) -> int:
        """So that each multiprocessor has some blocks, if segments suffice."""
        wanted = 4 * self._launcher.multiprocessors
        return next((parts for parts in (1, 2, 4) if blocks * parts >= wanted), 8)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _whole_units(x: Tensor) -> Tensor:
    """Rows of int8 with K in whole units, at a multiple of 16 bytes; zeros change no sum."""
    x = pad(x, (0, -x.shape[1] % UNIT)).contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()
