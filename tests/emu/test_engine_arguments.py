"""Arguments that the Engine refuses, in one line, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.errors import AdapterError, ModelError, RequestError
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
        ({"model": "x" * 5000}, ModelError, "File name too long"),
        (
            {"devices": ["emu:u280"], "cluster_file": "boards.yaml"},
            RequestError,
            "devices and a cluster file were both given",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    folder: Path, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Engine(**{"model": folder, **arguments}).close()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_bad_calls_of_the_token_level_are_refused(engine: Engine) -> None:
    sequence = engine.open_sequence()
    for tokens, message in (("abc", "token 0 of the prompt is 'a'"), ([999], "expected 0..289")):
        with pytest.raises(RequestError, match=message):
            engine.prefill(sequence, tokens)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="row 0 is 1; expected a Row"):
        engine.step([1])  # type: ignore[list-item]
    engine.release(sequence)


def test_bad_texts_and_tokens_are_refused_by_the_tokenizer(engine: Engine) -> None:
    with pytest.raises(RequestError, match="the text is 5; expected a str"):
        engine.tokenizer.encode(5)  # type: ignore[arg-type]
    for ids in ([-1], ["a"], [1 << 40]):
        with pytest.raises(RequestError, match=r"token ids: .*; expected integers from 0 on"):
            engine.tokenizer.decode(ids)  # type: ignore[arg-type]


def test_bad_adapters_are_refused(folder: Path) -> None:
    with Engine(folder, max_adapters=1) as engine:
        for name, path, message in ((5, folder, "adapter name 5"), ("y", None, "path None")):
            with pytest.raises(AdapterError, match=message):
                engine.load_adapter(name, path)  # type: ignore[arg-type]
