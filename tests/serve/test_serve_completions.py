"""/v1/completions through the openai client."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from lora_sdk import BeamSearchParams, SamplingParams
from lora_sdk.step.results import Result
from tests.served import Served

PROMPT = "import os\n"


def engine_result(server: Served, prompt: str | list[int], **params: object) -> Result:
    result = server.engine.generate(prompt, SamplingParams(**params))  # type: ignore[arg-type]
    assert isinstance(result, Result)
    return result


def test_a_text_is_continued_as_the_engine_does(server: Served) -> None:
    want = engine_result(server, PROMPT, max_tokens=16)
    got = server.client().completions.create(model="demo", prompt=PROMPT, temperature=0)
    assert got.object == "text_completion" and got.id.startswith("cmpl-")
    assert got.choices[0].text == want.text and got.choices[0].finish_reason == "length"
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (want.prompt_tokens, 16)


def test_a_batch_of_texts_and_of_tokens(server: Served) -> None:
    texts = ["import os\n", "def f(", "class A:\n"]
    tokens = [server.engine.tokenizer.encode(text) for text in texts]
    create = server.client().completions.create
    shared = {"model": "demo", "max_tokens": 6, "n": 2, "seed": 5}
    want = [
        output.text
        for text in texts
        for output in engine_result(
            server, text, max_tokens=6, n=2, seed=5, temperature=1.0
        ).outputs
    ]
    for prompt in (texts, tokens):
        got = create(prompt=prompt, **shared)  # type: ignore[call-overload]
        assert [choice.text for choice in got.choices] == want
        assert [choice.index for choice in got.choices] == list(range(6))


def test_usage_comes_last_when_asked_for(server: Served) -> None:
    chunks = list(
        server.client().completions.create(
            model="demo", prompt=PROMPT, max_tokens=7, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    *others, last = chunks
    assert last.choices == [] and last.usage is not None and last.usage.completion_tokens == 7
    assert all(chunk.usage is None for chunk in others)
    bare = list(
        server.client().completions.create(model="demo", prompt=PROMPT, max_tokens=2, stream=True)
    )
    assert all(chunk.choices and chunk.usage is None for chunk in bare)


def test_usage_in_every_chunk(server: Served) -> None:
    chunks = list(
        server.client().completions.create(
            model="demo", prompt=PROMPT, max_tokens=4, temperature=0, stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore[typeddict-unknown-key]
        )
    )  # fmt: skip
    assert [c.usage.completion_tokens for c in chunks if c.usage] == [1, 2, 3, 4, 4]


def test_logprobs_are_the_engines(server: Served) -> None:
    want = engine_result(server, PROMPT, max_tokens=5, logprobs=3).outputs[0].logprobs
    assert want is not None
    create = server.client().completions.create
    got = create(model="demo", prompt=PROMPT, max_tokens=5, logprobs=3, temperature=0)
    shown = got.choices[0].logprobs
    assert shown is not None and shown.tokens is not None and shown.top_logprobs is not None
    assert shown.token_logprobs == [entry.chosen.logprob for entry in want]
    assert "".join(shown.tokens) == got.choices[0].text
    assert [len(top) for top in shown.top_logprobs] == [3] * 5
    for token, offset in zip(shown.tokens, shown.text_offset or (), strict=True):
        assert got.choices[0].text[offset:].startswith(token)
    streamed = create(
        model="demo", prompt=PROMPT, max_tokens=5, logprobs=3, temperature=0, stream=True
    )
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    assert [part.text_offset for part in parts if part] == [[o] for o in shown.text_offset or ()]
    assert [part.tokens for part in parts if part] == [[token] for token in shown.tokens]


def test_echo_scores_the_prompt(server: Served) -> None:
    """As lm-evaluation-harness asks for log likelihoods."""
    tokens = server.engine.tokenizer.encode(PROMPT)
    want = engine_result(server, tokens, max_tokens=1, prompt_logprobs=1).prompt_logprobs
    assert want is not None
    for limit in (0, 1):
        got = server.client().completions.create(
            model="demo", prompt=tokens, max_tokens=limit, logprobs=1, echo=True, temperature=0
        )
        shown = got.choices[0].logprobs
        assert shown is not None and shown.token_logprobs is not None
        assert shown.token_logprobs[0] is None and len(shown.token_logprobs) == len(tokens) + limit
        assert shown.token_logprobs[1 : len(tokens)] == [e.chosen.logprob for e in want if e]
        text = server.engine.tokenizer.decode(tokens, skip_special=False)
        assert got.choices[0].text.startswith(text) and text.endswith(PROMPT)
        assert got.usage is not None and got.usage.completion_tokens == limit


def test_echo_is_streamed_first(server: Served) -> None:
    whole = server.client().completions.create(
        model="demo", prompt=PROMPT, max_tokens=4, temperature=0, echo=True
    )
    chunks = server.client().completions.create(
        model="demo", prompt=PROMPT, max_tokens=4, temperature=0, echo=True, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert whole.choices[0].text.startswith(PROMPT)


@pytest.mark.parametrize("limit", [0, 3])
def test_echo_with_logprobs_is_streamed_as_answered(server: Served, limit: int) -> None:
    fields: dict[str, Any] = {
        "model": "demo", "prompt": [PROMPT, "def f("], "max_tokens": limit, "logprobs": 2,
        "echo": True, "temperature": 0.8, "seed": 4, "n": 2,
    }  # fmt: skip
    whole = server.client().completions.create(**fields)
    shown: dict[int, list[Any]] = {}
    for chunk in server.client().completions.create(**fields, stream=True):
        shown.setdefault(chunk.choices[0].index, []).append(chunk.choices[0])
    assert sorted(shown) == [0, 1, 2, 3]
    for choice in whole.choices:
        parts = [part.logprobs for part in shown[choice.index] if part.logprobs]
        assert choice.logprobs is not None
        for name, values in choice.logprobs:
            assert [one for part in parts for one in getattr(part, name)] == values
        assert "".join(part.text for part in shown[choice.index]) == choice.text
        assert shown[choice.index][-1].finish_reason == choice.finish_reason


@pytest.mark.parametrize("ids", [False, True])
def test_offsets_index_the_text(server: Served, ids: bool) -> None:
    """Of echoed prompts: texts with and without special tokens, and the same as tokens."""
    fields: dict[str, Any] = {"max_tokens": 4, "logprobs": 1, "echo": True, "temperature": 0}
    fields |= {"return_tokens_as_token_ids": ids}
    tokenizer = server.engine.tokenizer
    end = "<|endoftext|>"
    for prompt in (PROMPT, "a🎉bc", f"a{end}b", f"{end}é", ""):
        for sent in (prompt, tokenizer.encode(prompt)):
            (choice,) = server.post("/v1/completions", {"prompt": sent, **fields}).body["choices"]
            text, shown = choice["text"], choice["logprobs"]
            tokens = [*tokenizer.encode(prompt), *(shown["tokens"][-4:])]
            assert len(tokens) == len(shown["text_offset"])
            assert shown["text_offset"] == sorted(shown["text_offset"])
            for token, offset in zip(tokens[:-4], shown["text_offset"], strict=False):
                part = tokenizer.decode([token])
                assert text[offset:].startswith(part) or "\ufffd" in part, (prompt, token, offset)
            base = len(prompt if isinstance(sent, str) else tokenizer.decode(sent, False))
            assert shown["text_offset"][-4] == base


def test_offsets_within_and_behind_a_character(server: Served) -> None:
    body = {"prompt": "a🎉bc", "max_tokens": 0, "logprobs": 0, "echo": True}
    (choice,) = server.post("/v1/completions", body).body["choices"]
    shown = choice["logprobs"]
    assert shown["tokens"][0] == "<|endoftext|>" and shown["tokens"][-2:] == ["b", "c"]
    assert shown["text_offset"] == [0, 0, 1, 1, 1, 1, 2, 3] and choice["text"] == "a🎉bc"
    bare = {**body, "prompt": "<|endoftext|>c", "add_special_tokens": False}
    (choice,) = server.post("/v1/completions", bare).body["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 13]


def test_extras_of_vllm(server: Served) -> None:
    extra = {
        "top_k": 3, "min_p": 0.05, "ignore_eos": True, "repetition_penalty": 1.2,
        "prompt_logprobs": 1, "min_tokens": 2, "stop_token_ids": [5],
    }  # fmt: skip
    got = server.client().completions.create(
        model="demo", prompt=PROMPT, max_tokens=8, seed=3, extra_body=extra
    )
    want = engine_result(server, PROMPT, max_tokens=8, seed=3, temperature=1.0, **extra)
    assert got.choices[0].text == want.text
    listed = got.choices[0].prompt_logprobs  # type: ignore[attr-defined]
    assert listed[0] is None and len(listed) == want.prompt_tokens


def test_beam_search_as_the_engine_does_it(server: Served) -> None:
    params = BeamSearchParams(beam_width=4, n=2, max_tokens=9, length_penalty=0.5)
    want = server.engine.beam_search([PROMPT, "def f("], params)
    assert isinstance(want, list)
    more = {"use_beam_search": True, "best_of": 4, "length_penalty": 0.5}
    create = server.client().completions.create
    got = create(model="demo", prompt=[PROMPT, "def f("], n=2, max_tokens=9, extra_body=more)
    assert [c.text for c in got.choices] == [o.text for r in want for o in r.outputs]
    assert got.choices[0].text != got.choices[1].text
    drawn = create(
        model="demo", prompt=PROMPT, n=2, seed=3, temperature=1.5, max_tokens=9, extra_body=more
    )
    assert [c.text for c in drawn.choices] != [c.text for c in got.choices[:2]]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("use_beam_search", {"stream": True}),
        ("stop", {"stop": ["x"]}),
        ("logprobs", {"logprobs": 1}),
        ("n", {"n": 3, "best_of": 2}),
        ("best_of", {"best_of": 2000}),
        ("best_of", {"best_of": 900}),
        ("length_penalty", {"length_penalty": 99}),
        ("early_stopping", {"early_stopping": "always"}),
    ],
)
def test_what_beam_search_does_not_take_is_named(
    server: Served, field: str, body: dict[str, object]
) -> None:
    more = {"use_beam_search": True, **body}
    with pytest.raises(BadRequestError) as caught:
        server.client().completions.create(model="demo", prompt=PROMPT, extra_body=more)
    assert caught.value.param == field


def test_stop_and_bias(server: Served) -> None:
    create = server.client().completions.create
    got = create(model="demo", prompt=PROMPT, max_tokens=30, temperature=0, stop=["os"])
    assert got.choices[0].finish_reason == "stop" and "os" not in got.choices[0].text
    assert got.choices[0].stop_reason == "os"  # type: ignore[attr-defined]
    token = server.engine.tokenizer.encode("class", special=False)[0]
    biased = create(
        model="demo", prompt=PROMPT, max_tokens=3, temperature=0, logit_bias={str(token): 100}
    )
    assert biased.choices[0].text == "classclassclass"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("best_of", 3),
        ("early_stopping", True),
        ("length_penalty", 0.5),
        ("temperature", "hot"),
        ("temperature", -1),
        ("top_p", 7),
        ("n", 0),
        ("n", True),
        ("seed", -2),
        ("logprobs", 21),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"5000": 1}),
        ("stop_token_ids", [5000]),
        ("stop", [""]),
        ("stop", ["x" * 257]),
        ("stream_options", {"include_usage": True}),
        ("suffix", "tail"),
        ("max_tokens", 0),
    ],
)
def test_a_bad_field_is_named(server: Served, field: str, value: object) -> None:
    with pytest.raises(BadRequestError) as caught:
        server.client().completions.create(model="demo", prompt=PROMPT, extra_body={field: value})
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == field
    assert field in caught.value.message


@pytest.mark.parametrize("prompt", [[], [[]], [99999], [1.5], None, {"a": 1}, [["a"]], "\ud800"])
def test_a_bad_prompt(server: Served, prompt: object) -> None:
    got = server.post("/v1/completions", {"prompt": prompt})
    assert got.status == 400 and got.body["error"]["message"]
    if prompt != "\ud800":  # which no body can have
        assert got.body["error"]["param"].split(".")[0] == "prompt"


@pytest.mark.parametrize(
    "fields, field",
    [({"max_tokens": 1000}, "max_tokens"), ({"min_tokens": 1000}, "min_tokens"),
     ({"max_tokens": 995}, "")],
)  # fmt: skip
def test_new_tokens_must_fit_beside_the_prompt(
    server: Served, fields: dict[str, int], field: str
) -> None:
    """As vLLM has it: nothing that a request names is cut."""
    got = server.post("/v1/completions", {"prompt": [5] * 29, "stop": "\n", **fields})
    if not field:
        assert got.status == 200
        return
    error = got.body["error"]
    assert (got.status, error["param"]) == (400, field)
    assert error["code"] == "context_length_exceeded"
    told = "1029 tokens (29 in the prompt, 1000 in the completion); ask for at most 995"
    assert told in error["message"] and "maximum context length is 1024" in error["message"]


def test_a_prompt_beyond_the_context(server: Served) -> None:
    with pytest.raises(BadRequestError) as caught:
        server.client().completions.create(model="demo", prompt=[5] * 1025)
    assert caught.value.code == "context_length_exceeded"
    fits = server.client().completions.create(model="demo", prompt=[5] * 1024)
    assert fits.usage is not None and fits.usage.completion_tokens == 1


def test_models(server: Served) -> None:
    (only,) = server.client().models.list().data
    assert only.id == "demo" and only.max_model_len == server.engine.context  # type: ignore[attr-defined]
    assert server.client().models.retrieve("demo").id == "demo"
    with pytest.raises(NotFoundError) as caught:
        server.client().completions.create(model="other", prompt="a")
    assert caught.value.code == "model_not_found"


def test_tokens_there_and_back(server: Served) -> None:
    text = "def naïve(x):\n    return '→'"
    got = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).body
    assert got["tokens"] == server.engine.tokenizer.encode(text) and got["count"] > 5
    assert len(got["token_strs"]) == got["count"]
    back = server.post("/detokenize", {"tokens": got["tokens"]}).body
    assert back["prompt"].endswith(text)
    assert server.post("/detokenize", {"tokens": [99999]}).status == 400
    assert server.post("/tokenize", {}).status == 400
