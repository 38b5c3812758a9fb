from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.cli.prompts import one_source, read_batch, read_prompt
from lora_sdk.engine.evaluation import windows_of
from lora_sdk.sampling import SamplingParams


@pytest.mark.parametrize(
    "content, text",
    [
        (b"a", "a"),
        (b"a\n", "a"),
        (b"a\n\n", "a\n"),
        (b"a\r\n", "a"),
        (b"\n a \n", "\n a "),
        ("\ufeffé\n".encode(), "é"),
    ],
)
def test_one_final_newline_of_a_prompt_file_is_dropped(
    content: bytes, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "prompt"
    file.write_bytes(content)
    assert read_prompt(str(file)) == text


def test_standard_input_is_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n".encode())))
    assert read_prompt("-") == "é"


def test_a_folder_is_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is a folder"):
        read_prompt(str(tmp_path))


@pytest.mark.parametrize("given", [(), ("p", "f", None), ("p", "f", "b"), (None, "f", "b")])
def test_exactly_one_source(given: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, encoding="ascii") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(RequestError, match="found"):
            one_source(*(given or (None, None, None)))


def test_a_piped_standard_input_is_the_source_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("x")
    with (tmp_path / "text").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert one_source(None, None, None) == "-"
        assert one_source(None, "f", None) == "f"
        assert one_source("p", None, None) is None and one_source(None, None, "b") is None


def test_flags_are_defaults_of_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    file.write_text('"a\u2028"\n\n{"messages": [], "max_tokens": 3}\n', encoding="utf-8")
    lines = read_batch(str(file), {"max_tokens": 9, "seed": 4})
    assert [line.number for line in lines] == [1, 3]
    assert lines[0].params == SamplingParams(max_tokens=9, seed=4) and lines[0].prompt == "a\u2028"
    assert lines[1].params.max_tokens == 3 and lines[1].messages == []


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize(
    "tokens, context, stride", [(5, 16, 8), (17, 16, 8), (18, 16, 8), (100, 16, 5), (40, 7, 7)]
)
def test_every_token_counts_once_in_a_window_of_the_context(
    first: int, tokens: int, context: int, stride: int
) -> None:
    windows = windows_of(tokens, first, context, stride)
    counted = [index for w in windows for index in range(w.scored, w.stop)]
    assert counted == list(range(first, tokens))
    for place, window in enumerate(windows):
        assert window.stop - 1 - window.start <= context  # rows that run
        assert window.start < window.scored  # each has a token before it
        if place:
            assert window.stop - window.scored <= stride
            assert window.start == max(0, window.stop - context - 1)
