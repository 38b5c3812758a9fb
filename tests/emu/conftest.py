"""Folders of random models and the oracle's logits of them, once a module."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from lora_sdk.model.checkpoint import Checkpoint
from tests.drive import Logits
from tests.oracle import Oracle, load_weights
from tests.parity.score import first_tokens
from tests.variants import variant, write_checkpoint


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A variant's folder, with weights three times as large as a model begins with."""

    @cache
    def written(name: str) -> Path:
        return write_checkpoint(variant(name), tmp_path_factory.mktemp(name), "x3")

    return written


@pytest.fixture(scope="module")
def oracle_logits(folder_of: Callable[[str], Path]) -> Callable[[str, int], Logits]:
    """FP32 [length, vocabulary] of the first positions of a variant's first prompt."""

    @cache
    def logits(name: str, length: int) -> Logits:
        checkpoint = Checkpoint.open(folder_of(name))
        oracle = Oracle(checkpoint.config, load_weights(checkpoint))
        return oracle.logits(first_tokens(name, length))

    return logits
