"""Text in the middle: /infill as llama.cpp has it, and `suffix` of completions, for models whose
tokenizer has tokens for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from lora_sdk import Engine
from lora_sdk.text.fim import Fim, fim_of
from lora_sdk.text.tokenizer import Tokenizer
from tests.served import QWEN, Served, eventually, fim_model, served

PREFIX, SUFFIX = "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n"
ASK: dict[str, Any] = {
    "input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 12, "temperature": 0,
}  # fmt: skip
STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = fim_model(tmp_path_factory.mktemp("qwen"), *QWEN)
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield running
        assert eventually(running.settled)


@pytest.fixture(scope="module")
def starcoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = fim_model(tmp_path_factory.mktemp("starcoder"), *STARCODER)
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield running


def plain(engine: Engine, text: str) -> list[int]:
    return engine.tokenizer.encode(text, special=False)


def marks(engine: Engine) -> Fim:
    found = fim_of(engine.tokenizer)
    assert found is not None
    return found


def test_infill_is_the_prompt_by_hand(qwen: Served) -> None:
    engine = qwen.engine
    pre, middle, suf, _, repo, file = range(4090, 4096)
    got = qwen.post("/infill", {**ASK, "prompt": "return"})
    around = [pre, *plain(engine, PREFIX + "return"), suf, *plain(engine, SUFFIX), middle]
    tokens = [*engine.tokenizer.begins_with, *around]
    expected = engine.generate(tokens, max_tokens=12).outputs[0]
    assert got.status == 200 and got.body["content"] == expected.text
    assert got.body["tokens"] == list(expected.token_ids)
    assert (got.body["stop"], got.body["stop_type"]) == (True, "limit")
    assert (got.body["tokens_predicted"], got.body["tokens_evaluated"]) == (12, len(tokens))
    extra = [{"text": "x = 1\n", "filename": "x.py"}, {"text": "y = 2\n"}]
    got = qwen.post("/infill", {**ASK, "prompt": "return", "input_extra": extra})
    others = [
        repo, *plain(engine, "myproject\n"), file, *plain(engine, "x.py\n"),
        *plain(engine, "x = 1\n"), file, *plain(engine, "tmp\n"), *plain(engine, "y = 2\n"),
        file, *plain(engine, "filename\n"),
    ]  # fmt: skip
    expected = engine.generate([0, *others, *around], max_tokens=12).outputs[0]
    assert got.body["tokens"] == list(expected.token_ids)
    assert got.body["tokens_evaluated"] == 1 + len(others) + len(around)


def test_files_without_tokens_of_their_own(starcoder: Served) -> None:
    engine = starcoder.engine
    got = starcoder.post("/infill", {**ASK, "input_extra": [{"text": "x = 1\n"}]})
    others = [*plain(engine, "\n\n--- snippet ---\n\n"), *plain(engine, "x = 1\n")]
    around = marks(engine).around(plain(engine, PREFIX), plain(engine, SUFFIX))
    expected = engine.generate([0, *others, *around], max_tokens=12).outputs[0]
    assert got.body["tokens"] == list(expected.token_ids)


def test_a_stream_has_the_same_text(qwen: Served) -> None:
    whole = qwen.post("/infill", {**ASK, "temperature": 1.0, "seed": 5}).body
    body = json.dumps({**ASK, "temperature": 1.0, "seed": 5, "stream": True}).encode()
    asked = Request(f"{qwen.url}/infill", body, {"content-type": "application/json"})
    with urlopen(asked, timeout=60) as got:
        lines = [line[6:] for line in got.read().decode().split("\n\n") if line]
    events = [json.loads(line) for line in lines]  # no [DONE]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert {**whole, "content": "", "tokens": [], "tokens_cached": 0} == {
        **events[-1], "tokens_cached": 0,
    }  # fmt: skip


def test_ends(qwen: Served) -> None:
    stop = qwen.post("/infill", ASK).body["content"][3:5]
    got = qwen.post("/infill", {**ASK, "stop": [stop]}).body
    assert (got["stop_type"], got["stopping_word"]) == ("word", stop) and stop not in got["content"]
    got = qwen.post("/infill", {**ASK, "n_predict": 0}).body
    assert (got["content"], got["tokens"], got["tokens_predicted"]) == ("", [], 0)
    pad = str(QWEN.index("<|fim_pad|>") + 4090)
    got = qwen.post("/infill", {**ASK, "logit_bias": {pad: 1e6}}).body
    assert (got["content"], got["stop_type"], got["tokens_predicted"]) == ("", "eos", 1)
    got = qwen.post("/infill", {**ASK, "n_predict": -1, "logit_bias": {pad: -1e6}}).body
    assert got["tokens_predicted"] + got["tokens_evaluated"] == qwen.engine.context


def test_what_is_too_long_is_cut(qwen: Served) -> None:
    """Far from the middle, and other files first."""
    engine, long = qwen.engine, "x = 1\n" * 2000
    got = qwen.post("/infill", {
        **ASK, "input_prefix": long + PREFIX, "input_suffix": SUFFIX + long,
        "input_extra": [{"text": long}],
    }).body  # fmt: skip
    room = engine.context - 12 - 4
    prefix, suffix = plain(engine, long + PREFIX), plain(engine, SUFFIX + long)[: room // 4]
    tokens = [0, *marks(engine).around(prefix[-(room - room // 4) :], suffix)]
    assert got["tokens_evaluated"] == len(tokens) == engine.context - 12
    assert got["tokens"] == list(engine.generate(tokens, max_tokens=12).outputs[0].token_ids)
    last = qwen.post("/infill", {**ASK, "input_extra": [{"text": long}, {"text": "y"}]}).body
    assert last["tokens_evaluated"] < 60  # the first file has no room, the second has


def test_a_suffix_is_encoded_once(qwen: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of 4 MB with 128 prompts would cost minutes."""
    seen: list[str] = []
    encode = Tokenizer.encode

    def noted(self: Tokenizer, text: str, *more: Any, **fields: Any) -> list[int]:
        seen.append(text)
        return encode(self, text, *more, **fields)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    body = {"prompt": ["a", "b", "c"], "suffix": "tail", "max_tokens": 1}
    assert qwen.post("/v1/completions", body).status == 200
    assert seen.count("tail") == 1
    long = "x = 1\n" * 150_000
    files = [{"text": long}]
    body = {**ASK, "input_prefix": long, "input_suffix": long, "input_extra": files}
    assert qwen.post("/infill", body).status == 200
    assert max(map(len, seen)) < len(long) // 10


def test_openais_suffix(qwen: Served) -> None:
    engine, client = qwen.engine, qwen.client()
    expected = engine.generate(
        [0, *marks(engine).around(plain(engine, PREFIX), plain(engine, SUFFIX))], max_tokens=12
    ).outputs[0]
    fields: dict[str, Any] = {"model": "demo", "max_tokens": 12, "temperature": 0}
    got = client.completions.create(prompt=PREFIX, suffix=SUFFIX, **fields)
    assert got.choices[0].text == expected.text
    chunks = client.completions.create(prompt=PREFIX, suffix=SUFFIX, stream=True, **fields)
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected.text
    several = client.completions.create(prompt=[PREFIX, "x"], suffix=SUFFIX, **fields)
    assert several.choices[0].text == expected.text
    ids = client.completions.create(prompt=[0, *plain(engine, PREFIX)], suffix=SUFFIX, **fields)
    assert ids.usage is not None and got.usage is not None  # the caller's own BOS, inside
    assert ids.usage.prompt_tokens == got.usage.prompt_tokens
    without = client.completions.create(prompt=PREFIX, suffix="", **fields)
    assert without.choices[0].text == engine.generate(PREFIX, max_tokens=12).text


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/infill", {"input_suffix": "a"}, "input_prefix"),
        ("/infill", {"input_prefix": "a"}, "input_suffix"),
        ("/infill", {**ASK, "input_extra": [{"text": 1}]}, "input_extra"),
        ("/infill", {**ASK, "input_extra": [{}] * 1025}, "input_extra"),
        ("/infill", {**ASK, "input_extra": {"a": 1}}, "input_extra"),
        ("/infill", {**ASK, "n_predict": -2}, "n_predict"),
        ("/infill", {**ASK, "n_predict": 10**30}, "n_predict"),
        ("/infill", {**ASK, "n_predict": 1021}, "n_predict"),
        ("/infill", {**ASK, "repeat_penalty": -1}, "repeat_penalty"),
        ("/infill", {**ASK, "temperature": "hot"}, "temperature"),
        ("/infill", {**ASK, "top_p": 7}, "top_p"),
        ("/infill", {**ASK, "logit_bias": {"5000": 1}}, "logit_bias"),
        ("/infill", {**ASK, "n_probs": 3}, "n_probs"),
        ("/infill", {**ASK, "prompt": [1, 2]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}, "suffix"),
        ("/v1/completions", {"prompt": "a", "suffix": "b", "truncate_prompt_tokens": 3}, "suffix"),
        ("/v1/completions", {"prompt": "a", "suffix": ["b"]}, "suffix"),
        ("/v1/completions", {"prompt": [9999], "suffix": "b"}, "prompt"),
        ("/v1/completions", {"prompt": ["a"] * 128, "suffix": "b c " * 9000}, "suffix"),
    ],
)
def test_refusals(qwen: Served, path: str, fields: dict[str, Any], param: str) -> None:
    got = qwen.post(path, fields)
    assert got.status == 400 and got.body["error"]["param"] == param, got.body
    assert "\n" not in got.body["error"]["message"]


def test_a_model_without_such_tokens(server: Served) -> None:
    for path, fields, param in (
        ("/infill", ASK, "input_suffix"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
    ):
        got = server.post(path, fields)
        assert got.status == 400 and got.body["error"]["param"] == param
        assert "no tokens for text in the middle" in got.body["error"]["message"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (QWEN, Fim(4090, 4092, 4091, 4094, 4095, (4094, 4095, 4093))),
        (STARCODER, Fim(4092, 4094, 4093, None, None, (4095,))),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
         Fim(4093, 4094, 4095, None, None, ())),
        (("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"), Fim(4092, 4093, 4094, None, None, (4095,))),
        (("<PRE>", "<SUF>", "<MID>"), Fim(4093, 4094, 4095, None, None, ())),
        (("<|fim_prefix|>", "<fim_suffix>", "<MID>"), None),
    ],
)  # fmt: skip
def test_known_tokens(names: tuple[str, ...], found: Fim | None, tmp_path: Path) -> None:
    assert fim_of(Tokenizer(fim_model(tmp_path, *names), 4096)) == found
