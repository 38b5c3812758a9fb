"""Padded table rows as boards read them. Weight blocks are packed in C (csrc/src/pack_*.c)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lora_host import abi

Half = npt.NDArray[np.float16]
Bytes = npt.NDArray[np.uint8]


def pack_rows(values: npt.NDArray[np.generic], row_bytes: int) -> Bytes:
    """A table [rows, columns], each row padded by zeros: uint8 [rows, row_bytes]."""
    rows, columns = values.shape
    if columns * values.itemsize == row_bytes:
        return np.ascontiguousarray(values).view(np.uint8)
    packed = np.zeros((rows, row_bytes), np.uint8)
    packed[:, : columns * values.itemsize] = np.ascontiguousarray(values).view(np.uint8)
    return packed


def pack_scales(scales: npt.NDArray[np.float32], bias: Half | None) -> Bytes:
    """FP32 scales [N] in whole lines, followed by the FP16 bias [N]: uint8 [bytes]."""
    lines = [scales.astype("<f4"), *([] if bias is None else [bias.astype("<f2")])]
    line = abi.LINE_BYTES
    return np.concatenate(
        [pack_rows(part[None], -(-part.nbytes // line) * line)[0] for part in lines]
    )
