"""Debian's XRT packages, or a visible skip, or a failure with --require-xrt."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _needs_xrt(xrt_libraries: None) -> None:
    """All tests of this folder need the runtime's own libraries."""
