"""Options and fixtures that all tests share. The tests under emu/ run on emulated boards unless
`--device URI` names real ones: one fixture decides, no test does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", action="append", default=[], help="board URI; repeat for several boards"
    )
    parser.addoption(
        "--require-hw", action="store_true", help="missing boards fail instead of skipping"
    )
    parser.addoption(
        "--require-xrt",
        action="store_true",
        help="missing XRT libraries fail instead of skipping",
    )
    parser.addoption(
        "--require-parity",
        action="store_true",
        help="missing torch or transformers fail instead of skipping",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    if config.getoption("--device"):
        return
    for item in items:
        if "hw" in item.keywords:
            if config.getoption("--require-hw"):
                item.add_marker(pytest.mark.usefixtures("no_board_given"))
            else:
                item.add_marker(pytest.mark.skip(reason="no board given with --device"))


@pytest.fixture
def no_board_given() -> None:
    pytest.fail("--require-hw, but no board was given with --device")


@pytest.fixture(scope="session")
def devices(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """URIs of the boards under test; empty means emulated boards."""
    return tuple(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def parity_modules(pytestconfig: pytest.Config) -> tuple[object, object]:
    """(torch, transformers), or a visible skip, or a failure with --require-parity."""
    try:
        import torch
        import transformers
    except ImportError as error:
        if pytestconfig.getoption("--require-parity"):
            pytest.fail(f"--require-parity, but {error.name} is not installed")
        pytest.skip(f"{error.name} is not installed")
    return torch, transformers
