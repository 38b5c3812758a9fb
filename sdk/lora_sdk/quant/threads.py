"""The number of threads of BLAS."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from threadpoolctl import ThreadpoolController

from lora_sdk.model.spec import ModelConfig

SMALL_PRODUCT = 1 << 21
"""Matrices with fewer elements are multiplied by one thread."""


def blas_threads(config: ModelConfig) -> AbstractContextManager[object]:
    """A context in which matmuls of a small model run on one thread: waking BLAS's other threads
    costs more than they save, and much more on busy CPUs."""
    if config.hidden * config.ffn >= SMALL_PRODUCT:
        return nullcontext()
    limited: AbstractContextManager[object] = ThreadpoolController().limit(
        limits=1, user_api="blas"
    )
    return limited
