"""Cases of the matrix unit with 4-bit weights in groups along K. Each group and column has a scale
and a zero point, stored after the values of its block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_sdk.compile.isa import Matrix
from lora_sdk.model.weight_formats import W4A8, W4A16, WeightFormat

from . import answers
from .bench import ROWS, TABLES, WEIGHTS, Bytes, Case, Site, StepCase, Test, begin
from .matmuls import FIRST, MERGE, N
from .moves import STRIDE, operand, result_offset

GROUP = 64
K = 5 * GROUP  # whole groups; segments split some
_GROUPS = 128 // GROUP
_LINE = abi.LINE_BYTES


class Weights:
    """Values 0..15 [K, N], FP16 scales and zero points [groups, N] of a case."""

    def __init__(self, site: Site) -> None:
        groups = -(-K // GROUP)
        self.values = site.random(11).integers(0, 16, (K, N), np.uint8)
        self.scales = site.random(12).uniform(0.01, 0.05, (groups, N)).astype(np.float16)
        self.zeros = site.random(13).integers(0, 16, (groups, N), np.uint8)

    def half(self) -> NDArray[np.float16]:
        """FP16((q - z)*s) [K, N]."""
        group = np.arange(K) // GROUP
        centred = self.values.astype(np.float32) - self.zeros[group].astype(np.float32)
        dense: NDArray[np.float16] = (centred * self.scales[group].astype(np.float32)).astype(
            np.float16
        )
        return dense

    def blocks(self, site: Site) -> tuple[Bytes, ...]:
        """Blocks of 128 x 32 weights, interleaved over the case's banks."""
        deep, wide = -(-K // 128), -(-N // 32)
        out = []
        for j in range(deep * wide):
            data = self._block(j % deep, j // deep * 32)
            request = FIRST + j // MERGE
            line = request // len(site.banks) * MERGE + j % MERGE
            bank = site.banks[request % len(site.banks)]
            out.append(Bytes(bank, WEIGHTS + line * len(data), data))
        return tuple(out)

    def _block(self, deep: int, column: int) -> bytes:
        values = np.zeros((128, 32), np.uint8)
        part = self.values[deep * 128 : deep * 128 + 128, column : column + 32]
        values[: part.shape[0], : part.shape[1]] = part
        eights = values.reshape(16, 2, 4, 32)  # k = 8*a + 4*high + low
        packed = (eights[:, 0] | eights[:, 1] << 4).transpose(0, 2, 1)
        scales, zeros = np.zeros((_GROUPS, 32), np.float16), np.zeros((_GROUPS, 32), np.uint8)
        rows = slice(deep * _GROUPS, deep * _GROUPS + _GROUPS)
        for whole, of in ((scales, self.scales), (zeros, self.zeros)):
            tile = of[rows, column : column + 32]
            whole[: tile.shape[0], : tile.shape[1]] = tile
        pairs = zeros[:, ::2] | zeros[:, 1::2] << 4
        data: bytes = packed.tobytes() + scales.tobytes() + pairs.tobytes()
        return data.ljust(-(-len(data) // _LINE) * _LINE, b"\0")


def _command(site: Site, kind: WeightFormat, bias: bool) -> Matrix:
    return Matrix(
        what="matmul", bank_first=site.banks.start, bank_count=len(site.banks), merge=MERGE,
        weight_line=WEIGHTS // _LINE, first=FIRST, x_bank=site.control, y_bank=site.control, k=K,
        n=N, x_offset=result_offset(0), x_stride=STRIDE, y_offset=result_offset(1),
        y_stride=STRIDE, weight_type=kind.weight_type(GROUP),
        bias_bank=site.banks.start if bias else abi.NO_BANK, bias_line=TABLES // _LINE,
    )  # fmt: skip


def _w4a16(site: Site) -> Case:
    weights, x, b = Weights(site), site.half((ROWS, K), 1.0, 1), site.half((N,), 1.0, 3)
    y = (answers.matmul(x, weights.half()) + b.astype(np.float32)).astype(np.float16)
    placed = (*weights.blocks(site), operand(site, 0, x))
    placed += (Bytes(site.banks.start, TABLES, b.tobytes()),)
    step = StepCase((operand(site, 1, y, "matmul"),), kv_ops=begin())
    return Case((_command(site, W4A16, True),), placed, (step,))


def _w4a8(site: Site) -> Case:
    """A group that crosses the end of a segment is split there. Each part is an exact sum."""
    weights = Weights(site)
    x = site.random(1).integers(-127, 128, (ROWS, K), np.int8)
    scale = site.random(3).uniform(1e-4, 1e-2, N).astype(np.float32)
    b = site.half((N,), 1.0, 4)
    parts = []
    for first, end in answers.segments(K):
        total = np.zeros((ROWS, N), np.float32)
        while first < end:
            group = first // GROUP
            until = min(end, (group + 1) * GROUP)
            own = x[:, first:until].astype(np.int64)
            sums = own @ weights.values[first:until].astype(np.int64)
            sums -= own.sum(axis=1, keepdims=True) * weights.zeros[group].astype(np.int64)
            total = total + sums.astype(np.float32) * weights.scales[group].astype(np.float32)
            first = until
        parts.append(total)
    exact = answers.tree_reduce(parts, np.add)
    y = (exact * scale + b.astype(np.float32)).astype(np.float16)
    lines = scale.tobytes().ljust(-(-4 * N // _LINE) * _LINE, b"\0")
    placed = (*weights.blocks(site), operand(site, 0, x))
    placed += (Bytes(site.banks.start, TABLES, lines + b.tobytes()),)
    step = StepCase((operand(site, 1, y, "matmul"),), kv_ops=begin())
    return Case((_command(site, W4A8, True),), placed, (step,))


TESTS = (
    Test("MPU", "matmul, W4A16", _w4a16, weights=W4A16.overlay_weights),
    Test("MPU", "matmul, W4A8", _w4a8, weights=W4A8.overlay_weights),
)
