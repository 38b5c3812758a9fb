"""Philox4x64-10 (Salmon et al., 2011): the counter-based random numbers of sampling
(docs/numbers.md, 8.1)."""

from __future__ import annotations

from lora_host.logits import uniforms

__all__ = ["uniform", "uniforms"]


def uniform(seed: int, sample: int, position: int) -> float:
    """The float64 in [0, 1) with which sample `sample` draws the token at `position`."""
    return uniforms(seed, sample, position, 0, 1)[0]
