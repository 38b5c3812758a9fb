"""A stock vLLM server computes prompts on its own, boards go on from its K and V."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk import Engine, SamplingParams
from lora_sdk.kv.key_columns import board_columns
from lora_sdk.prefill.job import Job, Part, joined_parts
from lora_sdk.prefill.receiving import ReceivingComputer
from lora_sdk.prefill.shared_kv import digest_of
from tests.handover_times import handover_times
from tests.prefill_rig import held
from tests.served import eventually, served
from tests.vllm.producer import BOUND, NAMES, Producer, crowd, differing, prompts_of, proxy

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", params=["float32", "float16"])
def producer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Producer]:
    running = Producer(request.param, tmp_path_factory.mktemp("kv"))
    try:
        yield running
    finally:
        running.server.end()


@pytest.fixture(scope="module")
def engine(producer: Producer) -> Iterator[Engine]:
    with open_engine(producer) as opened:
        yield opened


def open_engine(producer: Producer, **options: Any) -> Engine:
    return Engine(
        boards=4, prefill=producer.worker, prefill_mode="fast", max_sequences=16, **options
    )


@pytest.fixture(scope="module")
def tokens_of(engine: Engine) -> list[list[int]]:
    return prompts_of(engine.tokenizer)


def kv_logits(engine: Engine, producer: Producer, tokens: list[int]) -> NDArray[np.float32]:
    """Logits of a prompt's last token by the boards, from vLLM's K and V of the others."""
    name = next(NAMES)
    parts: list[Part] = []
    job = Job(tokens[:-1], None, lambda: True, name=name, digest=digest_of(tokens))
    receiving = ReceivingComputer(str(producer.socket), engine.config, (), len(tokens))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(producer.compute, tokens, name)
        receiving.compute(job, parts.append)
        asked.result()
    kv = joined_parts(parts).with_columns(board_columns(engine.config))
    sequence = engine.import_kv(tokens[:-1], kv)
    logits = engine.prefill(sequence, tokens[-1:])
    engine.release(sequence)
    return logits


def test_logits_are_within_a_bound_of_the_boards(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    errors = []
    for tokens in tokens_of[:15]:
        sequence = engine.open_sequence()
        want = engine.prefill(sequence, tokens)
        engine.release(sequence)
        found = kv_logits(engine, producer, tokens)
        errors.append(float(np.abs(found - want).max() / want.std()))
    middle = float(np.median(errors))
    print(f"{producer.kind}: errors {middle:.5f}, at most {max(errors):.5f}")
    assert 0 < middle < BOUND and max(errors) < 1.5 * BOUND


def test_greedy_texts_of_50_prompts(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    """Each is the boards' own up to a token whose margin is within what K and V may change."""
    own = engine.generate(tokens_of, SamplingParams(max_tokens=24, logprobs=2))
    before = engine.prefill_use.prompts
    names = [next(NAMES) for _ in tokens_of]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(producer.compute, t, n) for t, n in zip(tokens_of, names, strict=True)]
        params = [SamplingParams(max_tokens=24, prefill_id=name) for name in names]
        found = engine.generate(tokens_of, params)
        answers = [one.result() for one in asked]
    assert engine.prefill_use.prompts - before == 50
    assert {one["kv_transfer_params"]["id"] for one in answers} == set(names)
    assert all(one.prefill == "fast" for one in found)
    different = differing(own, [one.token_ids for one in found])
    print(f"{producer.kind}: {50 - different} of 50 texts are the boards' own")
    assert different <= 10


def test_the_transfer_overlaps_the_prefill(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    """K and V of finished layers are in the boards' pages while vLLM computes the next ones: of a
    prompt of several steps all but the last parts, as the times of each write say."""
    tokens = [token for one in tokens_of[:20] for token in one][:1000]
    name = next(NAMES)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(producer.compute, tokens, name)
        times = handover_times(engine, tokens, prefill_id=name)
        asked.result()
    print(f"{producer.kind}: {times.hidden} of {len(times.writes)} parts")
    assert len(tokens) == 1000 and len(times.writes) >= 3 * engine.config.layers // 2
    assert len(times.writes) - 2 <= times.hidden
    written = [end for _, end in times.writes]
    assert written[len(written) // 2] < times.computed


def test_decoding_goes_on_beside_it(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    """Sequences that decode meanwhile say the same, and emit tokens before K and V are there."""
    tokens = [token for one in tokens_of[:20] for token in one][:1000]
    want = engine.generate("def main(", max_tokens=200, ignore_eos=True).token_ids
    name = next(NAMES)
    emitted: list[tuple[float, int | None]] = []

    def decode() -> None:
        for delta in engine.stream("def main(", max_tokens=200, ignore_eos=True):
            emitted.append((time.monotonic(), delta.token_id))

    with ThreadPoolExecutor(3) as pool:
        decoding = pool.submit(decode)
        assert eventually(lambda: bool(emitted))
        waiting = pool.submit(engine.generate, tokens, max_tokens=1, prefill_id=name)
        begin = time.monotonic()
        asked = pool.submit(producer.compute, tokens, name)
        waiting.result()
        end = time.monotonic()
        asked.result()
        decoding.result()
    assert tuple(token for _, token in emitted) == want
    assert sum(begin < one < end for one, _ in emitted) > 5


def test_vllm_names_a_prompt_that_has_no_name(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    """As usual proxies do it: vLLM first, then what it answered goes to the boards."""
    tokens = tokens_of[4]
    body = {"model": "demo", "prompt": tokens, "max_tokens": 1,
            "kv_transfer_params": {"do_remote_decode": True}}  # fmt: skip
    url = f"http://127.0.0.1:{producer.server.port}/v1/completions"
    asked = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(asked, timeout=120) as got:
        params = json.loads(got.read())["kv_transfer_params"]
    before = engine.prefill_use.prompts
    with served(lambda _: open_engine(producer)) as server:
        answer = server.post("/v1/completions", {
            "model": "demo", "prompt": tokens, "max_tokens": 8, "temperature": 0,
            "kv_transfer_params": params,
        })  # fmt: skip
        assert server.engine.prefill_use.prompts == 1
    assert answer.status == 200 and engine.prefill_use.prompts == before


def test_cancelled_requests_and_a_killed_producer(
    producer: Producer, tokens_of: list[list[int]]
) -> None:
    """200 requests through the proxy, every fourth client goes away, and in the middle vLLM is
    killed: all others end, with texts that the boards could say, and no page is held."""
    with (
        served(lambda _: open_engine(producer)) as server,
        proxy(producer.server.port, server.port) as address,
    ):
        crowd(address, producer, tokens_of)
        assert eventually(server.settled, 60)
        assert held(server.engine) == 0
        use = server.engine.prefill_use
        print(f"{producer.kind}: {use.prompts} of 200 prompts by vLLM")
        assert 40 < use.prompts < 190
