"""The simulated units, or a visible skip, or a failure with --require-rtl."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from lora_host import rtl, sim
from lora_host.errors import RequestError


@pytest.fixture(scope="session")
def units(pytestconfig: pytest.Config) -> Any:
    """The package's library of simulated units."""
    missing = ""
    if shutil.which("verilator") is None:
        missing = "Verilator is not installed (Debian: apt-get install verilator)"
    else:
        try:
            return rtl.library()
        except RequestError as error:
            missing = str(error)
    if pytestconfig.getoption("--require-rtl"):
        pytest.fail(f"--require-rtl, but {missing}")
    pytest.skip(missing)


@pytest.fixture(scope="session")
def cards(pytestconfig: pytest.Config) -> Any:
    """The package's library of simulated cards; without it as `units`."""
    try:
        return sim.library()
    except RequestError as error:
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session", autouse=True)
def _needs_units(units: Any) -> None:
    """All tests of this folder need them."""
