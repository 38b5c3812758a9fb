"""Kernels (see exact/kernels.py) in CUDA."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from lora_host import abi
from lora_host.errors import RequestError
from lora_prefill.exact.attention import Scores
from lora_prefill.exact.cuda.attending import Attending
from lora_prefill.exact.cuda.launcher import Grid, Launcher
from lora_prefill.exact.integers import Heads
from lora_prefill.exact.matrices import Product

UNIT = abi.UNIT_COLUMNS
FEW = 64  # rows up to which blocks of 32 rows are faster
COLUMNS = 128  # of a block
MAX_BLOCKS = 65535  # of rows, of a grid
MAX_GROUP = 256  # of K: sums of a part stay below 2^22


@dataclass(frozen=True)
class Tiled:
    """Kernels of a matmul: `name` for many rows, with `_32` for few, and what joins parts. A
    multiprocessor has `resident` blocks at once. `left`: the speed with 1, 2, 4 and 8 parts,
    measured where there are blocks enough."""

    name: str
    join: str
    resident: int
    left: tuple[float, float, float, float]

    def parts(self, blocks: int, multiprocessors: int) -> int:
        """How many blocks share the segments of an output: what is fastest with this many."""
        places = self.resident * multiprocessors

        def speed(choice: int) -> float:
            count = blocks << choice
            return count / (-(-count // places) * places) * self.left[choice]

        return 1 << max(range(4), key=speed)


HALVES = Tiled("half_products", "join_products", 2, (1.0, 0.98, 0.95, 0.9))
BYTES = Tiled("byte_products", "join_bytes", 2, (1.0, 0.75, 0.66, 0.5))
GROUPS = Tiled("group_products", "join_products", 1, (1.0, 0.88, 0.75, 0.6))


class CudaKernels:
    """Kernels by a Launcher. `parts`: how many blocks share the segments of an output, 1, 2, 4 or
    8; None for what is fastest."""

    def __init__(self, launcher: Launcher, parts: int | None = None) -> None:
        self._launcher, self._parts = launcher, parts
        self._attending = Attending(launcher)

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        x, w = x.contiguous(), w.contiguous()
        sizes = (len(x), x.shape[1], w.shape[1])
        return self._joined(HALVES, (x, w), sizes)

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        x, columns = _whole_units(x), _whole_units(w.t())
        sizes = (len(x), x.shape[1], len(columns))
        return self._joined(BYTES, (x, columns), sizes)

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """See Products."""
        if group > MAX_GROUP:
            raise RequestError(f"groups of {group}; the CUDA kernels take at most {MAX_GROUP}")
        x, columns = _whole_units(x), _whole_units(w.t())
        sizes = (len(x), x.shape[1], len(columns), group)
        given = (x, columns, scales.contiguous())
        return self._joined(GROUPS, given, sizes)

    def quantized(self, x: Tensor, factor: Tensor | float) -> Tensor:
        """See Products."""
        x = x if x.stride(1) == 1 else x.contiguous()
        y = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        sizes = x.shape[1], x.stride(0)
        self._launcher.launch("quantize", _wide(x), 256, x, *_factors(factor), y, *sizes)
        return y

    def rounded(self, product: Product, bias: Tensor | None) -> Tensor:
        """See Kernels."""
        total, y = product.total, torch.empty_like(product.total, dtype=torch.float16)
        factors = _factors(product.factor)
        given = (total, product.columns, *factors, bias, y, total.shape[1])
        self._launcher.launch("round_products", _wide(total), 256, *given)
        return y

    def rms_norm(self, x: Tensor, gamma: Tensor | None, eps: float, above: float) -> Tensor:
        """See Kernels."""
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        given = (x, gamma, float(eps), float(above), y, x.shape[1])
        self._launcher.launch("row_rms_norm", (len(x), 1, 1), 128, *given)
        return y

    def rotated(self, x: Tensor, angles: Tensor, columns: int) -> Tensor:
        """See Kernels."""
        x, angles = x.contiguous(), angles.contiguous()
        y, n = torch.empty_like(x), x.shape[1]
        given = (x, angles, y, n, columns, 2 * angles.shape[2])
        self._launcher.launch("rotate_heads", (-(-n // 256), len(x), 1), 256, *given)
        return y

    def by_head(self, x: Tensor) -> Heads:
        """See Kernels."""
        rows, heads, size = x.shape
        x = x if x.stride()[1:] == (size, 1) else x.contiguous()
        found = Heads(
            torch.empty((heads, rows, size), dtype=torch.int8, device=x.device),
            torch.empty((heads, rows), dtype=torch.float16, device=x.device),
            torch.empty((heads, rows, size), dtype=torch.float16, device=x.device),
        )
        given = (x, *found, size, x.stride(0))
        self._launcher.launch("quantize_heads", (rows, heads, 1), 32, *given)
        return found

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

    def _joined(self, of: Tiled, operands: tuple[Tensor, ...], sizes: tuple[int, ...]) -> Tensor:
        """FP32 [rows, columns]. Where blocks are few each has a part of the segments."""
        rows, columns = sizes[0], sizes[2]
        few = rows <= FEW
        down = -(-rows // (32 if few else 128))
        if down > MAX_BLOCKS:
            raise RequestError(f"{of.name}: {rows} rows; expected at most {MAX_BLOCKS * 128}")
        across = -(-columns // COLUMNS)
        parts = self._parts or of.parts(down * across, self._launcher.multiprocessors)
        y = _empty(operands[0], parts, rows, columns)
        name = f"{of.name}_32" if few else of.name
        self._launcher.launch(name, (across, down, parts), 256, *operands, y, *sizes, parts)
        if parts == 1:
            return y[0]
        found = _empty(y, rows, columns)
        grid = (-(-found.numel() // 256), 1, 1)
        self._launcher.launch(of.join, grid, 256, y, found, parts, found.numel())
        return found


def _wide(x: Tensor) -> Grid:
    """Blocks of 1024 columns of a row."""
    return -(-x.shape[1] // 1024), len(x), 1


def _factors(factor: Tensor | float) -> tuple[Tensor | None, float]:
    """Each row's, or none, and one for all."""
    return (factor.contiguous(), 1.0) if isinstance(factor, Tensor) else (None, float(factor))


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _whole_units(x: Tensor) -> Tensor:
    """Rows of int8 with K in whole units, at a multiple of 16 bytes; zeros change no sum."""
    if x.shape[1] % UNIT:
        x = pad(x, (0, -x.shape[1] % UNIT))  # copies also where it adds nothing
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()
