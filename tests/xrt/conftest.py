"""Debian's XRT packages, or a visible skip, or a failure with --require-xrt."""

from __future__ import annotations

import pytest

from lora_host.errors import TransportError
from lora_host.xrt_environment import find_libraries


@pytest.fixture(scope="session", autouse=True)
def xrt_libraries(pytestconfig: pytest.Config) -> None:
    """All tests of this folder need the runtime's own libraries."""
    try:
        find_libraries()
    except TransportError as error:
        if pytestconfig.getoption("--require-xrt"):
            pytest.fail(f"--require-xrt, but {error}")
        pytest.skip(str(error))
