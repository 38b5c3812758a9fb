"""Texts so long that a tokenizer works on them for a while."""

from __future__ import annotations

import threading
import time

import pytest

from lora_sdk import demo_model_path
from lora_sdk.text import tokenizer as tokenizing
from lora_sdk.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(demo_model_path(), 4096)


@pytest.mark.parametrize("special", [True, False])
def test_a_long_text_has_the_tokens_of_any_text(
    tokenizer: Tokenizer, special: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def naïve(x):\n    return '🎉→' <|endoftext|> \t x\n" * 200
    assert len(text) > tokenizing._LONG
    found = tokenizer.encode(text, special)
    monkeypatch.setattr(tokenizing, "_LONG", len(text))
    assert found == tokenizer.encode(text, special)


def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    stop, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            time.sleep(0.001)
            ticks += 1

    text, took, during = "a " * 100_000, 0.0, 0
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        while took < 0.4:
            text += text
            before, began = ticks, time.monotonic()
            tokenizer.encode(text)
            took, during = time.monotonic() - began, ticks - before
    finally:
        stop.set()
        thread.join()
    assert during >= 20, (during, took)
