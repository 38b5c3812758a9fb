"""Bits per byte of a folder in NumPy float32, layer by layer over all windows: the reference for
the boards' result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lora_sdk.quant.arithmetic import F32, embed, head, run_layer
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.threads import blas_threads
from lora_sdk.text.windows import Window

Progress = Callable[[int, int], None]
BATCH_TOKENS = 1 << 16  # tokens of the windows in one pass
LOGIT_ROWS = 128  # bounds the memory of exponentials


def embed_windows(operations: DenseOperations, windows: Sequence[Sequence[int]]) -> list[F32]:
    """The inputs of the first layer: [T, hidden] per window."""
    checkpoint, config = operations.checkpoint, operations.config
    tokens = checkpoint.table("embed.token")
    table: NDArray[np.float16] | None = None
    if config.position_rows:
        table = checkpoint.table("embed.position")
    found = []
    for window in windows:
        rows = tokens[np.asarray(window)].astype(np.float32)
        offset = config.position_offset
        at = None if table is None else table[offset : offset + len(window)].astype(np.float32)
        found.append(embed(rows, config, at, operations))
    return found


def float_bits(
    operations: DenseOperations,
    tokens: Sequence[int],
    windows: Sequence[Window],
    progress: Progress | None = None,
) -> float:
    """Bits of the scored tokens of `windows` over `tokens`. `progress` counts tokens."""
    batches: list[list[Window]] = [[]]
    for window in windows:
        if sum(w.stop - w.start for w in batches[-1]) >= BATCH_TOKENS:
            batches.append([])
        batches[-1].append(window)
    bits, parts = 0.0, operations.config.layers + 1
    for batch in batches:
        done = batch[0].start

        def layer_done(layers: int, at: int = done, end: int = batch[-1].stop) -> None:
            if progress is not None:
                progress(at + (end - at) * layers // parts, windows[-1].stop)

        with blas_threads(operations.config):
            bits += _batch_bits(operations, tokens, batch, layer_done)
    return bits


def _batch_bits(
    operations: DenseOperations,
    tokens: Sequence[int],
    windows: Sequence[Window],
    layer_done: Callable[[int], None],
) -> float:
    config = operations.config
    operations.load(None)
    streams = embed_windows(operations, [tokens[w.start : w.stop - 1] for w in windows])
    for layer in range(config.layers):
        operations.load(layer)
        streams = [run_layer(x, layer, config, operations) for x in streams]
        layer_done(layer + 1)
    operations.load(None)
    bits = 0.0
    for x, window in zip(streams, windows, strict=True):
        first = max(0, window.scored - 1 - window.start)
        targets = tokens[window.start + first + 1 : window.stop]
        bits += bits_of(head(x[first:], config, operations), targets)
    layer_done(config.layers + 1)
    return bits


def bits_of(logits: F32, targets: Sequence[int]) -> float:
    """Bits of the tokens `targets` by rows of logits [T, vocabulary], some rows at a time:
    exponentials in FP32, sums in FP64."""
    bits = 0.0
    for first in range(0, len(targets), LOGIT_ROWS):
        rows = logits[first : first + LOGIT_ROWS]
        rows = rows - rows.max(axis=1, keepdims=True)
        some = np.asarray(targets[first : first + LOGIT_ROWS])
        chosen = rows[np.arange(len(some)), some].astype(np.float64)
        whole = np.log(np.exp(rows).sum(axis=1, dtype=np.float64))
        bits += float((whole - chosen).sum() / np.log(2.0))
    return bits
