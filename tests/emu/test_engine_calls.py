"""Ways to call the engine: keyword arguments, several prompts of asyncio, chat; what objects say of
themselves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_sdk import Delta, Engine, Result, SamplingParams
from tests.variants import variant, write_checkpoint

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("calls") / "model")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    )
    with Engine(folder, boards=2, max_sequences=4) as opened:
        yield opened


def tokens(deltas: list[Delta]) -> list[int]:
    return [delta.token_id for delta in deltas if delta.token_id is not None]


async def collected(deltas: Any) -> list[Delta]:
    return [delta async for delta in deltas]


def test_fields_of_the_parameters_are_keyword_arguments(engine: Engine) -> None:
    params = SamplingParams(max_tokens=9, temperature=0.8, seed=3)
    want = engine.generate("x", params)
    assert isinstance(want, Result)
    fields: dict[str, Any] = {"max_tokens": 9, "temperature": 0.8, "seed": 3}
    found = engine.generate("x", **fields)
    assert isinstance(found, Result) and found.token_ids == want.token_ids
    # fields replace those of params
    found = engine.generate("x", SamplingParams(max_tokens=2, temperature=0.8), **fields)
    assert isinstance(found, Result) and found.token_ids == want.token_ids
    assert tokens(list(engine.stream("x", **fields))) == list(want.token_ids)
    both = engine.generate(["x", "x"], [params, SamplingParams(max_tokens=2)], max_tokens=9)
    assert isinstance(both, list) and [len(one.token_ids) for one in both] == [9, 9]
    for call in (engine.generate, engine.stream, engine.agenerate, engine.astream):
        with pytest.raises(RequestError, match="'max_token' is unknown; did you mean 'max_tokens'"):
            made: Any = call("x", max_token=3)
            if hasattr(made, "__await__"):
                asyncio.run(made)
            else:
                next(made)


def test_asyncio_takes_several_prompts(engine: Engine) -> None:
    prompts = ["alpha", "b", [5, 6, 7]]
    want = engine.generate(prompts, max_tokens=8)

    async def work() -> None:
        found = await engine.agenerate(prompts, max_tokens=8)
        assert isinstance(found, list) and isinstance(want, list)
        assert [one.token_ids for one in found] == [one.token_ids for one in want]
        single = await engine.agenerate("b", SamplingParams(max_tokens=8))
        assert isinstance(single, Result) and single.token_ids == want[1].token_ids
        params = [SamplingParams(max_tokens=n) for n in (1, 2)]
        found = await engine.agenerate(["a", "b"], params)
        assert isinstance(found, list) and [len(one.token_ids) for one in found] == [1, 2]
        with pytest.raises(RequestError, match="prompt 1: token 0"):
            await engine.agenerate(["a", [99999]])

    asyncio.run(work())


def test_cancelling_several_prompts_ends_all(engine: Engine) -> None:
    async def work() -> None:
        prompts = ["a", "b", "c", "d"]
        task = asyncio.ensure_future(engine.agenerate(prompts, max_tokens=350, ignore_eos=True))
        while engine.steps == before:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ran = engine.steps
        await engine.agenerate("e", max_tokens=4)  # after the end of the others
        assert engine.steps - ran < 100

    before = engine.steps
    asyncio.run(work())
    assert engine.steps - before < 300


def test_a_chat_can_be_streamed_and_awaited(engine: Engine) -> None:
    want = list(engine.chat(MESSAGES, max_tokens=7).token_ids)
    assert tokens(list(engine.stream_chat(MESSAGES, SamplingParams(max_tokens=7)))) == want

    async def work() -> None:
        result = await engine.achat(MESSAGES, max_tokens=7)
        assert list(result.token_ids) == want
        assert tokens(await collected(engine.astream_chat(MESSAGES, max_tokens=7))) == want

    asyncio.run(work())


def test_log_probabilities_have_the_texts_of_their_tokens(engine: Engine) -> None:
    result = engine.generate("once", max_tokens=4, logprobs=2, prompt_logprobs=1)
    assert isinstance(result, Result) and result.prompt_logprobs is not None
    entries = result.outputs[0].logprobs
    assert entries is not None and len(entries) == 4
    for entry in (*entries, *result.prompt_logprobs[1:]):
        assert entry is not None
        for one in (entry.chosen, *entry.top):
            assert one.text == engine.tokenizer.token_text(one.token)
    (delta,) = [d for d in engine.stream("once", max_tokens=1, logprobs=0) if d.logprobs]
    assert delta.logprobs is not None and delta.logprobs.chosen.text is not None


def test_objects_say_what_they_are_on_one_line(engine: Engine) -> None:
    result = engine.generate("once " * 40, max_tokens=90, ignore_eos=True)
    for said, parts in (
        (repr(result), ("length", f"{result.prompt_tokens} prompt", "90 new tokens", "...")),  # type: ignore[union-attr]
        (repr(engine.plan), ("<Plan of llama: 2 x u280", "lora_f_u280", "context 384")),
        (repr(engine), (str(engine.model_path), "emulated boards: 2 x u280", "4 sequences>")),
    ):
        assert all(part in said for part in parts), said
        assert len(said) < 300 and "\n" not in said


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = Engine(write_checkpoint(variant("llama_narrow"), tmp_path / "model"))
    engine.close()
    assert repr(engine).endswith(", closed>")


CALLS = 120  # Python calls a token; a greedy one, that boards choose by themselves, costs 11


def test_a_sampled_token_takes_few_calls(engine: Engine) -> None:
    params = SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=1, ignore_eos=True)

    def calls(count: int) -> int:
        made = 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(note)
        try:
            engine.generate([5, 6, 7], replace(params, max_tokens=count))
        finally:
            sys.setprofile(None)
        return made

    calls(4)
    assert (calls(40) - calls(8)) / 32 < CALLS
