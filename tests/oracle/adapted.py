"""The forward pass with an adapter in addition to the weights: matmuls as defined in
docs/numbers.md, 7.3."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.spec import ModelConfig
from tests.oracle.arithmetic import F32, product, store
from tests.oracle.forward import Oracle

# canonical name -> (A [rank, inputs], B [outputs, rank], scale), blocks written out
Factors = Mapping[str, tuple[F32, F32, float]]


class Adapted(Oracle):
    """An Oracle whose matmuls add scale*(B*FP16(A*x)) before rounding."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, NDArray[np.float16]], factors: Factors
    ) -> None:
        super().__init__(config, weights)
        self.factors = factors

    def _linear(self, x: F32, name: str) -> F32:
        if name not in self.factors:
            return super()._linear(x, name)
        a, b, scale = self.factors[name]
        total = self._sum(x, name)
        h = store(product(x, a.T))
        return store(total + np.float32(scale) * product(h, b.T))


def merged(
    weights: Mapping[str, NDArray[np.float16]], factors: Factors
) -> dict[str, NDArray[np.float64]]:
    """Weights in float64 with the adapter's B*A added."""
    found = {name: array.astype(np.float64) for name, array in weights.items()}
    for name, (a, b, scale) in factors.items():
        found[name] = found[name] + scale * (b.astype(np.float64) @ a.astype(np.float64)).T
    return found
