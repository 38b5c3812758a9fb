"""vLLM in this process, on emulated boards, which are named before vLLM is imported."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

AVAILABLE = importlib.util.find_spec("vllm") is not None
if AVAILABLE:
    os.environ["LORA_BOARDS"] = "4"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without vLLM these tests are skipped, or fail where it is required."""
    if AVAILABLE:
        return
    required = config.getoption("--require-vllm")
    for item in items:
        if Path(__file__).parent in item.path.parents and not required:
            item.add_marker(pytest.mark.skip(reason="vllm is not installed"))


@pytest.fixture(scope="session")
def w4a8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with 4-bit weights."""
    from lora_sdk import demo_model_path
    from tests.commands import LORA, command

    folder = tmp_path_factory.mktemp("models") / "w4a8"
    made = command(
        LORA, "quantize", demo_model_path(), folder, "--scheme", "w4a8", "--windows", "8",
        timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def boards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """As many emulated boards as the test's parameter says."""
    monkeypatch.setenv("LORA_BOARDS", str(request.param))
    yield int(request.param)
