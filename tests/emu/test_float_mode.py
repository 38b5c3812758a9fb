"""A program may leave its thread rounding upward; stored bits must not follow."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.drive import Driver, open_runner
from tests.variants import variant, write_checkpoint

NEAREST, UPWARD = 0x0000, 0x0800  # glibc's fenv.h for x86-64


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    library = ctypes.CDLL("libm.so.6")
    assert library.fesetround(mode) == 0
    try:
        yield
    finally:
        library.fesetround(NEAREST)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the mode's numbers are x86-64's")
@pytest.mark.parametrize("kernels", ["native", "numpy"])
def test_rounding_mode_of_the_caller_changes_nothing(kernels: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant("llama_gqa_bias"), tmp_path / "model")
    with open_runner(folder, 2, kernels=kernels, sequences=2) as runner:
        driver = Driver(runner)
        nearest = driver.feed(0, [7, 200, 31, 5], [4])
        with rounding(UPWARD):
            upward = driver.feed(1, [7, 200, 31, 5], [4])
    assert upward.tobytes() == nearest.tobytes()
