"""How many threads multiply."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from threadpoolctl import ThreadpoolController

from lora_sdk.model.spec import ModelConfig

SMALL_PRODUCT = 1 << 21
"""Elements of a matrix below which one thread multiplies."""


def blas_threads(config: ModelConfig) -> AbstractContextManager[object]:
    """While it is open, products of a small model run on one thread: waking BLAS's others costs
    more than they save, and much more where the CPUs are busy."""
    if config.hidden * config.ffn >= SMALL_PRODUCT:
        return nullcontext()
    limited: AbstractContextManager[object] = ThreadpoolController().limit(
        limits=1, user_api="blas"
    )
    return limited
