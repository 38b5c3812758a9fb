"""Arguments that the Engine refuses, in one line, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.errors import ModelError, RequestError
from lora_sdk import Engine, SamplingParams
from tests.variants import variant, write_checkpoint

GREEDY = SamplingParams(max_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("engine") / "model")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder) as opened:
        yield opened


@pytest.mark.parametrize(
    "prompt, message",
    [
        ([], "no prompt was given"),
        ("", "empty"),
        ([5, 999], "expected 0..289"),
        ([-1], "expected 0..289"),
        (None, "the prompt is None"),
        (5, "the prompt is 5"),
        (b"ab", "the prompt is b'ab'"),
        ([5, "a"], "prompt 0: the prompt is 5"),
        ([1.5], "prompt 0: the prompt is 1.5"),
        ("a\udcff", "not Unicode"),
    ],
)
def test_bad_prompts_are_refused(engine: Engine, prompt: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        engine.generate(prompt, SamplingParams(max_tokens=1))  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [5, {"max_tokens": 3}, "greedy", [GREEDY, GREEDY], [7]])
def test_bad_parameters_are_refused(engine: Engine, params: object) -> None:
    with pytest.raises(RequestError, match=r"SamplingParams|2 sampling parameters for 1 prompts"):
        engine.generate("a", params)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="expected a Tree"):
        engine.verify(0, [5])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"boards": 3}, RequestError, "3 boards were requested; expected 1, 2, 4, 8, 16, 32 or 64"),
        ({"boards": 0}, RequestError, "0 boards"),
        (
            {"boards": 4, "devices": ["emu:u280"] * 2},
            RequestError,
            "4 boards requested, 2 devices named",
        ),
        ({"devices": ["emu:u28"]}, RequestError, "did you mean"),
        ({"kernels": "cuda"}, RequestError, "'native', 'numpy' or 'rtl'"),
        ({"context": 0}, RequestError, "context"),
        ({"context": 100000}, RequestError, "context 100000"),
        ({"max_sequences": 65}, RequestError, "65 sequences"),
        ({"hidden_layers": [99]}, RequestError, "hidden"),
        ({"model": "/nowhere"}, ModelError, "does not exist"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    folder: Path, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Engine(**{"model": folder, **arguments}).close()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
