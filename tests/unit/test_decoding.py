"""Texts of tokens one by one, against the tokenizers package's text of all at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_sdk.text.decoding import RUN
from lora_sdk.text.streaming import Detokenizer, TextPlaces, TextStream
from lora_sdk.text.tokenizer import Tokenizer
from tests.random_tokens import (
    NAMED,
    byte_letters,
    decoder_of,
    random_decoder,
    random_tokens,
    tokenizer_with,
    vocabulary,
)

WHOLE_LIST = ("expression_late",)  # decoders without a text before the last token


@cache
def named(name: str) -> Tokenizer:
    with TemporaryDirectory() as folder:
        return tokenizer_with(decoder_of(NAMED[name]), Path(folder))


def ids_of(*pieces: str) -> list[int]:
    return [vocabulary()[piece] for piece in pieces]


def deltas_of(
    found: Tokenizer, ids: Sequence[int], prompt: Sequence[int] = (), skip: bool = True
) -> list[str]:
    detokenizer = Detokenizer(found, prompt, skip)
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


def check(found: Tokenizer, random: Random, level: float) -> None:
    """Deltas joined are the text at once; with a prompt, without the prompt's own text."""
    ids, skip = random_tokens(random, level), random.random() < 0.5
    text = found.decode(ids, skip)
    assert "".join(deltas_of(found, ids, skip=skip)) == text, (ids, skip)
    prompt = random_tokens(random, level, valid=True)
    shown = found.decode(prompt, skip)
    if not shown.endswith("\ufffd"):  # it may end within a character
        together = found.decode([*prompt, *ids], skip)[len(shown) :]
        assert "".join(deltas_of(found, ids, prompt, skip)) == together, (prompt, ids, skip)


def check_stops(found: Tokenizer, random: Random, level: float) -> None:
    """A stop string ends the text with the token that completes it, where it does in the text of
    the tokens so far; without one, nothing is lost."""
    ids = random_tokens(random, level, valid=random.random() < 0.7)
    text = found.decode(ids)
    start = random.randrange(len(text) + 1)
    stop = text[start : start + random.randint(1, 4)] or "日"
    include = random.random() < 0.5
    stream = TextStream(found, (), [stop], include, True)
    shown = ""
    for count, token in enumerate(ids, 1):  # noqa: B007
        shown += stream.push(token)
        if stream.matched is not None:
            break
    else:
        shown += stream.finish()
        assert shown == (text if stream.matched is None else _until(text, stop, include))
        assert (stream.matched is None) == (stop not in text)
        return
    so_far = found.decode(ids[:count])
    assert shown == _until(so_far, stop, include), (ids, stop)
    if "\ufffd" not in text:
        assert so_far.find(stop) == text.find(stop)
        before = found.decode(ids[: count - 1])
        assert stop not in before or "\ufffd" in before  # it ends within a character


def _until(text: str, stop: str, include: bool) -> str:
    return text[: text.index(stop) + len(stop) * include]


@pytest.mark.parametrize("name", NAMED)
def test_deltas_joined_are_the_text_at_once(name: str) -> None:
    random = Random(f"deltas {name}")
    for _ in range(60):
        check(named(name), random, 0.9 if name.startswith("byte_level") else 0.1)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in WHOLE_LIST])
def test_stop_strings_end_where_they_do_in_the_text(name: str) -> None:
    random = Random(f"stops {name}")
    for _ in range(60):
        check_stops(named(name), random, 0.9 if name.startswith("byte_level") else 0.1)


def test_neighbouring_characters_in_byte_tokens() -> None:
    ids = list("日本".encode())
    assert "".join(deltas_of(named("bytes"), ids)) == "日本"
    stream = TextStream(named("bytes"), (), ["本"], include_stop=False, skip_special=True)
    assert "".join(map(stream.push, ids)) == "日" and stream.matched == "本"


@pytest.mark.parametrize("name", ["llama", "bytes_alone", "never_fused", "bytes_word_piece"])
def test_long_runs_of_byte_tokens(name: str) -> None:
    for text in ("日本" * RUN, " . a" * RUN):
        ids = [*ids_of("a"), *text.encode(), *ids_of("b")]
        assert "".join(deltas_of(named(name), ids)) == named(name).decode(ids)


def test_any_decoders_in_any_order(tmp_path: Path) -> None:
    random = Random("orders")
    for _ in range(25):
        found = tokenizer_with(decoder_of(random_decoder(random)), tmp_path)
        for _ in range(8):
            check(found, random, 0.3)


def _in_common(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    same = (place for place, letter in enumerate(low) if high[place : place + 1] != letter)
    return low[: next(same, len(low))]


@pytest.mark.parametrize("name", ["byte_level", "llama", "gemma", "metaspace", "word_piece"])
def test_text_is_emitted_as_soon_as_no_token_can_change_it(name: str) -> None:
    """What is emitted is all that the texts of any two continuations have in common."""
    found, random = named(name), Random(f"early {name}")
    level = 0.9 if name == "byte_level" else 0.1
    byte = byte_letters() if name == "byte_level" else range(256)
    ends = (b"\xff", b"\x80" * 3, b"\xa0\x80", b"\x90\x80\x80")
    next_ones = [[], ids_of("a"), ids_of(" .")]
    next_ones += [[byte[one] for one in data] for data in (*ends, b"\x80\x80", b"\x80")]
    next_ones += [[*one, *ids_of("a")] for one in next_ones]
    for _ in range(20):
        ids = random_tokens(random, level)[: RUN // 4]
        if 0xBD in ids:  # U+FFFD itself may be written in bytes
            continue
        detokenizer, emitted = Detokenizer(found), ""
        for count, token in enumerate(ids, 1):
            emitted += detokenizer.push(token)
            texts = [found.decode([*ids[:count], *more]) for more in next_ones]
            assert emitted == _in_common(texts), ids[:count]


@pytest.mark.parametrize("name", ["byte_level", "llama", "metaspace", "word_piece", "none"])
def test_places_are_where_the_texts_of_tokens_begin(name: str) -> None:
    found, random = named(name), Random(f"places {name}")
    for _ in range(80):
        ids = random_tokens(random, float(name == "byte_level"), valid=True)
        if "\ufffd" in found.decode(ids):
            continue
        places = TextPlaces(Detokenizer(found))
        for count, token in enumerate(ids):
            whole = count
            while found.decode(ids[:whole]).endswith("\ufffd"):
                whole -= 1
            assert places.push(token) == len(found.decode(ids[:whole])), (ids, count)


@pytest.mark.parametrize("name", ["llama", "never_fused", "expression_late", "bpe", "ctc"])
def test_the_work_of_a_token_does_not_grow_with_the_text(name: str) -> None:
    """Counted in calls of Python and of the package, which one for the whole text would exceed."""
    found = named(name)
    stream = TextStream(found, (), ["\n\n\n"], include_stop=False, skip_special=True)
    ids = [*ids_of("a", "b"), *"日本語".encode()] * 400

    def calls(tokens: Sequence[int]) -> int:
        count = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            for token in tokens:
                stream.push(token)
        finally:
            sys.setprofile(None)
        return count

    calls(ids[:22])  # each token once, and what is cached of it
    first = calls(ids[:110])
    calls(ids)
    assert calls(ids[:110]) <= 1.1 * first


def test_what_is_no_token_is_refused() -> None:
    for token in (-1, 1 << 40, "a", None):
        with pytest.raises(RequestError, match="token ids"):
            Detokenizer(named("llama")).push(token)  # type: ignore[arg-type]
    assert deltas_of(named("llama"), [1 << 20]) == ["", ""]  # of no token


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_texts(part: int, tmp_path: Path) -> None:
    random = Random(f"many {part}")
    for turn in range(2000):  # five texts each
        name = random.choice(list(NAMED))
        check(named(name), random, random.random())
        if name not in WHOLE_LIST:
            check_stops(named(name), random, random.random())
        if turn % 50 == 0:
            other = tokenizer_with(decoder_of(random_decoder(random)), tmp_path)
        check(other, random, random.random())
