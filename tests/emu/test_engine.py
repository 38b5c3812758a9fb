"""The engine on emulated boards: text in, text out, the same on any number of them."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host.errors import ModelError, RequestError
from lora_sdk import Engine, Result, SamplingParams
from tests.variants import variant, write_checkpoint

PROMPTS = ["The quick brown fox", "a", "def f(x):\n    return x", "€ and 😀, then more " * 5]
SAMPLED = SamplingParams(
    max_tokens=12, temperature=0.9, top_k=50, top_p=0.95, min_p=0.01, seed=11,
    repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1,
)  # fmt: skip
GREEDY = SamplingParams(max_tokens=12)
LONG = SamplingParams(max_tokens=350, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("engine") / "model")


@pytest.fixture(scope="module")
def engine(folder: Path, devices: tuple[str, ...]) -> Iterator[Engine]:
    with Engine(folder, boards=2, devices=devices[:2], max_sequences=4) as opened:
        yield opened


def alone(engine: Engine, prompt: str | list[int], params: SamplingParams) -> Result:
    result = engine.generate(prompt, params)
    assert isinstance(result, Result)
    return result


@pytest.fixture(scope="module")
def expected(engine: Engine) -> dict[str, list[tuple[int, ...]]]:
    """Each prompt alone, step by step."""
    return {
        name: [tokens_by_steps(engine, prompt, params) for prompt in PROMPTS]
        for name, params in (("greedy", GREEDY), ("sampled", SAMPLED))
    }


def tokens_by_steps(engine: Engine, prompt: str, params: SamplingParams) -> tuple[int, ...]:
    deltas = list(engine.stream(prompt, params))
    return tuple(p.token_id for p in deltas if p.token_id is not None)


@pytest.mark.parametrize(
    "boards, kernels", [(1, "native"), (4, "native"), (8, "native"), (2, "numpy")]
)
def test_tokens_are_the_same_on_any_boards_in_any_batch(
    boards: int, kernels: str, folder: Path, expected: dict[str, list[tuple[int, ...]]]
) -> None:
    order = [2, 0, 3, 1]
    with Engine(folder, boards=boards, kernels=kernels, max_sequences=3) as engine:
        for name, params in (("greedy", GREEDY), ("sampled", SAMPLED)):
            results = engine.generate([PROMPTS[i] for i in order], params)
            assert isinstance(results, list)
            assert [r.token_ids for r in results] == [expected[name][i] for i in order]


def test_the_boards_loop_emits_what_steps_emit(
    engine: Engine, expected: dict[str, list[tuple[int, ...]]]
) -> None:
    before = engine.steps
    assert alone(engine, PROMPTS[0], GREEDY).token_ids == expected["greedy"][0]
    assert engine.steps - before < 4  # prefill and the table; the rest ran in C


def test_streamed_pieces_join_to_the_text(engine: Engine) -> None:
    for params in (GREEDY, SAMPLED):
        deltas = list(engine.stream(PROMPTS[3], params))
        assert "".join(p.text for p in deltas) == alone(engine, PROMPTS[3], params).text
        assert [p.finish_reason for p in deltas if p.finish_reason] == ["length"]


def test_closing_a_stream_cancels_and_frees(engine: Engine) -> None:
    stream = engine.stream(PROMPTS[0], SamplingParams(max_tokens=300))
    assert next(stream).token_id is not None
    stream.close()
    assert len(engine.generate([PROMPTS[1]] * 4, SamplingParams(max_tokens=2))) == 4


def test_a_stop_string_ends_the_text_before_it(engine: Engine) -> None:
    text = alone(engine, PROMPTS[0], SamplingParams(max_tokens=20, ignore_eos=True)).text
    stop = text[5:8]
    place = text.index(stop)
    params = SamplingParams(max_tokens=20, ignore_eos=True, stop=[stop])
    for result in (
        alone(engine, PROMPTS[0], params),
        engine.generate([PROMPTS[1], PROMPTS[0]], params)[1],
    ):
        output = result.outputs[0]
        assert output.text == text[:place]
        assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    kept = replace(params, include_stop_str_in_output=True)
    assert alone(engine, PROMPTS[0], kept).text == text[: place + len(stop)]


def test_a_stop_string_counts_from_min_tokens_on(engine: Engine) -> None:
    whole = alone(engine, PROMPTS[0], SamplingParams(max_tokens=20, ignore_eos=True, logprobs=0))
    stop = whole.text[0]
    params = SamplingParams(max_tokens=20, ignore_eos=True, stop=[stop], min_tokens=6)
    output = alone(engine, PROMPTS[0], params).outputs[0]
    assert len(output.token_ids) >= 6 and output.text.startswith(stop)


def test_evaluation_sums_the_prompts_own_log_probabilities(engine: Engine) -> None:
    from lora_sdk.engine.evaluation import evaluate_text

    text = PROMPTS[2] * 3
    entries = alone(engine, text, SamplingParams(max_tokens=1, prompt_logprobs=0)).prompt_logprobs
    assert entries is not None
    nats = [entry.chosen.logprob for entry in entries if entry is not None]
    begin = engine.tokenizer.begins_with
    bits = -sum(nats) / math.log(2) + (0 if begin else math.log2(engine.config.vocabulary))
    found = evaluate_text(engine, text.encode())
    assert found.windows == 1 and found.bits == pytest.approx(bits, rel=1e-12)
    assert found.tokens == len(entries) - len(begin) and found.bytes == len(text.encode())


def test_end_of_text_may_be_several_tokens_of_the_generation_config(
    folder: Path, tmp_path: Path, expected: dict[str, list[tuple[int, ...]]]
) -> None:
    tokens = expected["greedy"][0]
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "generation_config.json").unlink(missing_ok=True)
    ends = [tokens[3], 280]
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with Engine(copy) as engine:
        first = next(i for i, token in enumerate(tokens) if token in ends)
        output = alone(engine, PROMPTS[0], GREEDY).outputs[0]
        assert output.token_ids == tokens[: first + 1] and output.finish_reason == "stop"
        assert output.stop_reason == tokens[first]
        ignored = SamplingParams(max_tokens=12, ignore_eos=True)
        assert alone(engine, PROMPTS[0], ignored).token_ids == tokens
        least = SamplingParams(max_tokens=12, min_tokens=first + 2)
        assert len(alone(engine, PROMPTS[0], least).token_ids) > first + 1


def test_n_samples_are_those_of_their_index(engine: Engine) -> None:
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=5, n=6)
    result = alone(engine, PROMPTS[2], params)
    assert len({o.token_ids for o in result.outputs}) > 1
    batched = engine.generate([PROMPTS[0], PROMPTS[2]], params)[1]
    assert [o.token_ids for o in batched.outputs] == [o.token_ids for o in result.outputs]
    one = SamplingParams(max_tokens=8, temperature=1.0, seed=5)
    assert alone(engine, PROMPTS[2], one).token_ids == result.outputs[0].token_ids


def test_a_drawn_seed_is_told_and_repeats(engine: Engine) -> None:
    first = alone(engine, PROMPTS[0], SamplingParams(max_tokens=8, temperature=1.0))
    again = SamplingParams(max_tokens=8, temperature=1.0, seed=first.seed)
    assert alone(engine, PROMPTS[0], again).token_ids == first.token_ids


def test_logprobs_hold_the_chosen_token_and_its_rank(engine: Engine) -> None:
    params = SamplingParams(max_tokens=5, logprobs=3, prompt_logprobs=0)
    result = alone(engine, PROMPTS[0], params)
    logprobs = result.outputs[0].logprobs
    assert logprobs is not None and len(logprobs) == 5
    for token, entry in zip(result.token_ids, logprobs, strict=True):
        assert entry.chosen.token == token and entry.chosen.rank == 1
        assert entry.top[0] == entry.chosen and len(entry.top) == 3
    assert result.prompt_logprobs is not None
    assert len(result.prompt_logprobs) == result.prompt_tokens


def test_prompt_logprobs_equal_those_of_the_same_tokens_when_generated(engine: Engine) -> None:
    made = alone(engine, PROMPTS[0], SamplingParams(max_tokens=6, logprobs=0))
    whole = [*made.prompt_token_ids, *made.token_ids]
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    again = alone(engine, whole, params).prompt_logprobs
    assert again is not None and made.outputs[0].logprobs is not None
    assert list(again[-6:]) == list(made.outputs[0].logprobs)


def test_bad_words_and_the_mask_hook(engine: Engine) -> None:
    import numpy as np

    first = alone(engine, PROMPTS[0], SamplingParams(max_tokens=1)).token_ids[0]
    word = engine.tokenizer.token_text(first)
    if word.strip() and "\ufffd" not in word:
        banned = SamplingParams(max_tokens=1, bad_words=[word])
        assert alone(engine, PROMPTS[0], banned).token_ids[0] != first
    allowed = np.zeros(engine.config.vocabulary, dtype=np.bool_)
    allowed[100:103] = True
    params = SamplingParams(max_tokens=6, allowed_tokens=lambda tokens: allowed)
    assert set(alone(engine, PROMPTS[0], params).token_ids) <= {100, 101, 102}


def test_the_context_is_the_end_and_a_longer_prompt_is_refused(folder: Path) -> None:
    with Engine(folder, context=40) as engine:
        result = alone(engine, [5] * 38, SamplingParams(max_tokens=None, ignore_eos=True))
        assert len(result.token_ids) == 3 and result.finish_reason == "length"
        with pytest.raises(RequestError, match="42 tokens, 2 more than the context of 40"):
            engine.generate([5] * 42)


def test_async_requests_run_together_and_equal_the_others(
    engine: Engine, expected: dict[str, list[tuple[int, ...]]]
) -> None:
    async def work() -> list[Result]:
        return await asyncio.gather(*(engine.agenerate(p, SAMPLED) for p in PROMPTS))

    assert [r.token_ids for r in asyncio.run(work())] == expected["sampled"]


def test_leaving_an_async_stream_cancels_it(engine: Engine) -> None:
    async def work() -> int:
        count = 0
        async for delta in engine.astream(PROMPTS[0], LONG):
            count += delta.token_id is not None
            if count == 3:
                break
        many = SamplingParams(max_tokens=350, ignore_eos=True, temperature=1.0, n=64)
        before = engine.steps
        task = asyncio.create_task(engine.agenerate(PROMPTS[1], many))
        while engine.steps < before + 2:  # it runs; thousands of steps are left
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        after = await engine.agenerate(PROMPTS[1], GREEDY)
        return count + len(after.token_ids)

    assert asyncio.run(work()) <= 15


def test_closing_ends_the_boards_own_loop(folder: Path) -> None:
    """Another thread's long greedy run ends at its next token, and its caller receives why."""
    engine = Engine(folder)
    began = threading.Event()
    raised: list[BaseException] = []
    received = 0

    def listen(delta: object) -> None:
        nonlocal received
        received += 1
        began.set()
        if received == 3:
            closing.wait(20)

    def run() -> None:
        try:
            engine.generate(PROMPTS[0], LONG, on_delta=listen)
        except BaseException as error:
            raised.append(error)

    closing = threading.Event()
    runner = threading.Thread(target=run)
    runner.start()
    assert began.wait(20)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._closed:
        closer.join(0.001)
    closing.set()
    closer.join(20)
    runner.join(20)
    assert [type(error) for error in raised] == [RequestError] and "closed" in str(raised[0])
    assert received <= 3


def test_async_errors_reach_their_task(engine: Engine) -> None:
    async def work() -> None:
        with pytest.raises(RequestError, match="allows no token"):
            await engine.agenerate("a", SamplingParams(allowed_tokens=lambda tokens: _none(engine)))

    asyncio.run(work())


def _none(engine: Engine) -> object:
    import numpy as np

    return np.zeros(engine.config.vocabulary, dtype=np.bool_)


def test_an_interrupted_generation_leaves_a_working_engine(
    engine: Engine, expected: dict[str, list[tuple[int, ...]]]
) -> None:
    def interrupt(delta: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS[0], SamplingParams(max_tokens=50), on_delta=interrupt)
    assert alone(engine, PROMPTS[0], GREEDY).token_ids == expected["greedy"][0]


def test_results_arrive_as_they_finish(engine: Engine) -> None:
    received: list[int] = []
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 3, 6)]
    engine.generate(PROMPTS[:3], params, on_result=lambda index, result: received.append(index))
    assert received == [1, 2, 0]


@pytest.mark.parametrize("error", [BrokenPipeError("closed"), KeyboardInterrupt()])
def test_an_on_result_that_raises_ends_the_batch_with_its_error(
    engine: Engine, expected: dict[str, list[tuple[int, ...]]], error: BaseException
) -> None:
    received: list[int] = []

    def receive(index: int, result: object) -> None:
        received.append(index)
        raise error

    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (50, 3, 50)]
    before = engine.steps
    with pytest.raises(type(error)):
        engine.generate(PROMPTS[:3], params, on_result=receive)
    assert received == [1]
    assert engine.steps - before < 20  # the others were cancelled
    assert alone(engine, PROMPTS[0], GREEDY).token_ids == expected["greedy"][0]


def test_base_models_have_no_chat_and_say_so(engine: Engine) -> None:
    with pytest.raises(ModelError, match="no chat template: it is a base model"):
        engine.chat([{"role": "user", "content": "hi"}])


def test_chat_applies_the_template_and_writes_no_second_beginning(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "chat_template.jinja").write_text(
        "{% for m in messages %}<s>[{{ m['role'] }}] {{ m['content'] | trim }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    with Engine(copy) as engine:
        tokens = engine.chat_tokens([{"role": "user", "content": " hello "}])
        wanted = engine.tokenizer.encode("<s>[user] hello</s>\n[assistant]", special=False)
        assert tokens == wanted and tokens.count(0) == 1
        answer = engine.chat([{"role": "user", "content": " hello "}], GREEDY)
        assert answer.token_ids == alone(engine, wanted, GREEDY).token_ids
        with pytest.raises(RequestError, match="expected 'role' and 'content'"):
            engine.chat([{"role": "user"}])


def test_without_a_tokenizer_token_ids_still_work(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        if file.name != "tokenizer.json":
            (copy / file.name).symlink_to(file)
    with Engine(copy) as engine:
        assert len(alone(engine, [5, 6, 7], GREEDY).token_ids) == 12
        with pytest.raises(ModelError, match=r"no tokenizer\.json"):
            engine.generate("text")


def test_a_closed_engine_refuses_work(folder: Path) -> None:
    engine = Engine(folder)
    engine.close()
    engine.close()
    with pytest.raises(RequestError, match="closed"):
        engine.generate([5])
