"""The bytes of an INT8 array that is built with the multipliers of a vendor."""

from __future__ import annotations

from pathlib import Path

from tests.rtl.test_int8_matmul import Matmul, same, simulated
from tests.rtl_rig import FP16, FP32, build


def wrong_matmuls(depth: int, folder: Path, model: Path) -> list[Matmul]:
    """Those whose bytes differ from the NumPy model's, of an array of this depth over a model of
    the primitive."""
    units = build(folder, unit="int8", rows=2, depth=depth, primitives=model)
    matmuls = [
        Matmul(300, 75, 3, row_scales=True),
        Matmul(384, 320, 2, bias=False, extreme=0.3, y_type=FP32),
        Matmul(8191, 32, y_type=FP32, positive=True),
    ]
    for group in (32, 64, 128) if depth == 8 else ():
        matmuls += [
            Matmul(1664, 45, 3, group, y_type=y_type, seed=group) for y_type in (FP16, FP32)
        ]
        matmuls.append(Matmul(384, 96, 2, group, extreme=0.3, y_type=FP32))
    # one kind of weights behind the other: operands of the last one are still there
    mixed = [
        Matmul(256, 64, 1, group, y_type=FP32, seed=9)
        for group in ((0, 128, 0, 32) if depth == 8 else ())
    ]
    wrong = [one for one in matmuls if not simulated(units, one)]
    return wrong + [one for one in mixed if not same(units, one)]
