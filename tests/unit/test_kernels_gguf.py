"""Matmuls on GGUF's blocks: every native variant against the NumPy model, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import abi
from lora_sdk.model.weight_formats import GGUF_FORMATS, WeightFormat
from tests.unit.kernel_rig import NO_BANK, ONCHIP, TABLES, WEIGHT_BANKS, Rig
from tests.unit.test_kernels_native import EVERY, KINDS, run_native, values
from tests.unit.test_kernels_quantized import (
    FEW,
    FIRST,
    FP16,
    FP32,
    LINE,
    MERGE,
    X,
    Y,
    both,
    variant,
)

assert EVERY and variant  # a fixture
HALVES = {"q8_0": (4096, 4), "q5_0": (2560, 4), "q4_1": (2048, 8), "q5_1": (2560, 8)}
HALVES |= {"q4_0": (2048, 4), "iq4_nl": (2048, 4), "q4_k": (2240, 1), "q5_k": (2752, 1)}
HALVES |= {"q6_k": (3072, 1), "k_mixed": (3072, 1)}
"""Where rows of 32 FP16 numbers begin in a block, and how many."""
EXPONENT_BYTES = (2048, 4)  # of MXFP4: rows of 32
DMIN = 3072 + 64 + 256  # of K_MIXED


def fill(rig: Rig, row: WeightFormat, seed: int, exponents: range) -> None:
    """Any bytes are values and integers of scales; FP16 numbers are +-2^e*(1 + f), or zero."""
    generator = np.random.default_rng(seed)
    size = row.block_bytes(None)
    for bank in range(WEIGHT_BANKS[0], WEIGHT_BANKS[0] + WEIGHT_BANKS[1]):
        count = (len(rig.banks[bank]) - LINE * 64) // size
        blocks = generator.integers(0, 256, (count, size)).astype(np.uint8)
        if row.name == "mxfp4":
            start, rows = EXPONENT_BYTES
            raised = generator.integers(
                128 + exponents.start, 128 + exponents.stop, (count, 32 * rows)
            )
            blocks[:, start:] = np.clip(raised, 104, 140)
            rig.place(bank, LINE * 64, blocks)
            continue
        start, rows = HALVES[row.name]
        for first, lines in ((start, rows), *([(DMIN, 1)] if row.name == "k_mixed" else [])):
            shape = (count, lines * 32)
            raised = np.exp2(generator.integers(exponents.start, exponents.stop, shape))
            halves = (generator.uniform(-2, 2, shape) * raised).astype(np.float16)
            halves[generator.random(shape) < 0.05] = 0
            blocks[:, first : first + lines * 64] = halves.view(np.uint8)
        rig.place(bank, LINE * 64, blocks)


EXPONENTS = st.sampled_from([range(-12, -6), range(-24, -12), range(-18, -3), range(-1, 1)])


@pytest.mark.parametrize("row", GGUF_FORMATS, ids=lambda row: row.name)
@settings(FEW, max_examples=8)
@given(
    KINDS, EXPONENTS, st.sampled_from([1, 1, 1, 2, 3, 4, 5, 17]),
    st.sampled_from([32, 64, 160, 256, 512, 1312, 2048]),
    st.sampled_from([1, 31, 33, 70]), st.booleans(),
)  # fmt: skip
def test_products_are_the_numpy_models(
    variant: str, row: WeightFormat, kind: tuple[int, float, bool], exponents: range, rows: int,
    k: int, n: int, wide: bool,
) -> None:  # fmt: skip
    seed, extreme, far = kind
    k = -(-k // row.gguf.weights) * row.gguf.weights

    def build(rig: Rig) -> Any:
        fill(rig, row, seed, exponents)
        x = values(seed + 1, (rows, k), extreme if extreme < 0.1 else 0, far)
        rig.place_rows(ONCHIP, X, 2 * k + 64, x)
        rig.place(TABLES, 128, values(seed + 2, (n,), 0, False))
        rig.rows(rows)
        return rig.run(
            "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=MERGE,
            weight_type=row.weight_type(None), weight_line=LINE, first=FIRST, x_bank=ONCHIP,
            y_bank=ONCHIP, k=k, n=n, x_offset=X, x_stride=2 * k + 64, y_offset=Y,
            y_stride=4 * n + 64, bias_line=2, bias_bank=TABLES if seed % 2 else NO_BANK,
            y_type=FP32 if wide else FP16,
        )  # fmt: skip

    both(build)


def test_unknown_blocks_and_parts_of_blocks_are_refused(variant: str) -> None:
    rig = Rig(runner=run_native, bank_bytes=1 << 20)
    rig.rows(1)
    for weight_type, k in ((abi.WEIGHT_GGUF, 256), (0xC6, 256), (0x16, 48), (0x56, 128)):
        done = rig.run(
            "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=MERGE,
            weight_line=LINE, first=FIRST, x_bank=ONCHIP, y_bank=ONCHIP, n=32, x_offset=X,
            x_stride=1024, y_offset=Y, y_stride=1024, bias_bank=NO_BANK, y_type=FP16,
            weight_type=weight_type, k=k,
        )  # fmt: skip
        assert done.status in (abi.ERR_OPCODE, abi.ERR_SIZE)
