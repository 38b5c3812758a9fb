"""vLLM on boards takes K and V of prompts: from a stock vLLM, or from a worker of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_sdk import Engine, SamplingParams, demo_model_path
from tests.recovery_rig import FAULTS
from tests.vllm.producer import NAMES, Producer, crowd, differing, prompts_of, proxy
from tests.vllm.rig import counts, expected, greedy, vllm_on_boards, worker_of
from tests.vllm.server import VllmServer
from tests.vllm.test_vllm_failures import before_steps, boards_of

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Producer]:
    running = Producer("float32", tmp_path_factory.mktemp("kv"))
    try:
        yield running
    finally:
        running.server.end()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The boards' own texts."""
    with Engine(max_sequences=16) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokens_of(engine: Engine) -> list[list[int]]:
    return prompts_of(engine.tokenizer)


def transfer(worker: str) -> dict[str, Any]:
    """vLLM's option."""
    return {
        "kv_connector": "LoraBoardsConnector", "kv_role": "kv_consumer",
        "kv_connector_module_path": "lora_vllm.connector",
        "kv_connector_extra_config": {"prefill": worker},
    }  # fmt: skip


def ask(
    llm: Any, tokens: Sequence[list[int]], count: int, names: Sequence[str] = ()
) -> list[tuple[tuple[int, ...], Any]]:
    """Tokens of greedy requests that run together, and what the answers say of their prompts.
    `names`: under which a stock vLLM has them."""
    from vllm import SamplingParams as VllmParams

    asked = [{"kv_transfer_params": {"do_remote_prefill": True, "id": name}} for name in names]
    params = [
        VllmParams(temperature=0, max_tokens=count, extra_args=one)
        for one in asked or [None] * len(tokens)
    ]
    prompts = [{"prompt_token_ids": one} for one in tokens]
    found = llm.generate(prompts, params, use_tqdm=False)
    return [(tuple(one.outputs[0].token_ids), one.kv_transfer_params) for one in found]


def handed(
    llm: Any, producer: Producer, tokens: Sequence[list[int]], count: int, first: bool = False
) -> list[tuple[int, ...]]:
    """Texts of prompts whose K and V come from vLLM, all of them. `first`: it has computed them
    before boards are asked."""
    names = [next(NAMES) for _ in tokens]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(producer.compute, t, n) for t, n in zip(tokens, names, strict=True)]
        if first:
            for one in asked:
                one.result()
        found = ask(llm, tokens, count, names)
        for one in asked:
            one.result()
    assert [said for _, said in found] == [{"prefill": "fast"}] * len(tokens)
    return [text for text, _ in found]


def check_texts(engine: Engine, producer: Producer, tokens_of: list[list[int]]) -> None:
    """Boards compute the last token of each prompt, and new ones. Others that come later share
    nothing with these and are the boards' own."""
    own = engine.generate(tokens_of, SamplingParams(max_tokens=24, logprobs=2))
    with vllm_on_boards(demo_model_path(), kv_transfer_config=transfer(producer.worker)) as llm:
        found = handed(llm, producer, tokens_of, 24)
        assert counts(llm)["rows"] == sum(map(len, found))
        different = differing(own, found)
        print(f"{producer.kind}: {50 - different} of 50 texts are the boards' own")
        assert different <= 10
        assert [text for text, _ in ask(llm, tokens_of, 24)] == [one.token_ids for one in own]


def test_greedy_texts_of_50_prompts(
    engine: Engine, producer: Producer, tokens_of: list[list[int]]
) -> None:
    check_texts(engine, producer, tokens_of)


def test_greedy_texts_of_50_prompts_in_float16(
    engine: Engine, tokens_of: list[list[int]], tmp_path: Path
) -> None:
    producer = Producer("float16", tmp_path)
    try:
        check_texts(engine, producer, tokens_of)
    finally:
        producer.server.end()


@pytest.mark.parametrize("kind", ["firmware dead", "board lost"])
def test_a_failing_board_writes_them_again(
    producer: Producer, tokens_of: list[list[int]], kind: str
) -> None:
    """Texts are those of vLLM's K and V also after a recovery, which has none of them but the
    host's copies; also of requests that boards had to leave meanwhile."""
    tokens = tokens_of[:12]
    with vllm_on_boards(demo_model_path(), kv_transfer_config=transfer(producer.worker)) as llm:
        want = handed(llm, producer, tokens, 32, first=True)
        emulated = boards_of(llm).opened.cluster.emulated
        number, *rest = FAULTS["firmware dead"]
        fault = (abi.FAULT_BOARD_LOST,) if kind == "board lost" else (
            number | abi.FAULT_UNTIL_RESET, *rest,
        )  # fmt: skip
        rows, loading = counts(llm)["rows"], worker_of(llm)._loading
        failed = []

        def fail(_: int) -> None:  # once all have come
            if not failed and not loading._loadings and len(loading._boards.cache._open) == 12:
                failed.append(emulated.fault(1, *fault))

        before_steps(llm, fail)
        assert handed(llm, producer, tokens, 32, first=True) == want and failed
        assert counts(llm)["recoveries"] == 1
        again = counts(llm)["rows"] - rows - sum(map(len, want))
        assert 0 < again < sum(map(len, want))  # new tokens alone


def test_what_does_not_come_is_computed_by_boards(
    producer: Producer, tokens_of: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lora_sdk.prefill import receiving

    monkeypatch.setattr(receiving, "UNKNOWN_S", 1.0)
    tokens = tokens_of[:4]
    with vllm_on_boards(demo_model_path(), kv_transfer_config=transfer(producer.worker)) as llm:
        own = ask(llm, tokens, 8)
        producer.compute(tokens[2], "other-tokens")
        names = ["unknown", "other-tokens", "unknown", "not a name"]
        assert ask(llm, tokens, 8, names) == own
        assert [said for _, said in own] == [None] * 4
    with vllm_on_boards(demo_model_path(), kv_transfer_config=transfer("vllm:/nowhere")) as llm:
        assert ask(llm, tokens, 8, ["a", "b", "c", "d"]) == own


def test_a_worker_of_boards_is_exact(engine: Engine) -> None:
    """It computes prompts of which vLLM holds less than half; rows of the boards are the others'.
    The bytes are the same, so prefixes are shared."""
    begin = engine.tokenizer.encode("".join(f"value_{n} = {n * n}\n" for n in range(5)))[:40]
    tokens = [[*begin, *range(100 + n, 200 + n)] for n in range(8)]
    want = [engine.generate([one], max_tokens=12)[0].token_ids for one in tokens]
    with vllm_on_boards(demo_model_path(), kv_transfer_config=transfer("boards:1")) as llm:
        found = ask(llm, tokens, 12)
        assert found == [(text, {"prefill": "exact"}) for text in want]
        assert counts(llm)["rows"] == sum(map(len, want))
        rows = counts(llm)["rows"]
        assert [text for text, _ in ask(llm, tokens, 12)] == want
        assert counts(llm)["rows"] - rows < 8 * 40  # vLLM found most of each prompt
        others = [[*one[:-30], *range(30)] for one in tokens[:2]]  # three pages of four
        more = [[*one[:-60], *range(60)] for one in tokens[:2]]  # two of four
        want = [engine.generate([one], max_tokens=12)[0].token_ids for one in others + more]
        found = ask(llm, others + more, 12)
        assert [text for text, _ in found] == want
        assert [said for _, said in found] == [None, None, *[{"prefill": "exact"}] * 2]


def test_adapters_and_prompt_logprobs_are_the_boards(tokens_of: list[list[int]]) -> None:
    from vllm import SamplingParams as VllmParams
    from vllm.lora.request import LoRARequest

    from tests.processes import ROOT

    folder = ROOT / "models" / "demo_adapter_lora"
    texts = ["def main(", "import os\n"]
    want = expected(demo_model_path(), texts, 8, adapter=folder, max_adapters=1)
    options = {"enable_lora": True, "max_lora_rank": 8}
    with vllm_on_boards(
        demo_model_path(), kv_transfer_config=transfer("boards:1"), **options
    ) as llm:
        asked = [LoRARequest("a", 1, str(folder))] * 2
        assert greedy(llm, texts, 8, lora_request=asked) == want
        params = VllmParams(temperature=0, max_tokens=1, prompt_logprobs=1)
        (found,) = llm.generate(
            {"prompt_token_ids": tokens_of[1]}, params, use_tqdm=False
        )  # fmt: skip
        assert len(found.prompt_logprobs) == len(tokens_of[1])
        assert found.kv_transfer_params is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kv_role": "kv_producer"}, "kv_role 'kv_producer': boards are a 'kv_consumer'"),
        ({"kv_connector": "ExampleConnector", "kv_connector_module_path": None},
         "KV connector 'ExampleConnector': boards take K and V by 'LoraBoardsConnector'"),
        ({"kv_connector_extra_config": {}}, "prefill is None; expected a worker"),
        ({"kv_connector_extra_config": {"prefill": "boards:3"}}, "'boards:N' with N of 1, 2"),
        ({"kv_connector_extra_config": {"prefill": "boards:1", "socket": "/a"}}, "has 'socket'"),
        ({"kv_connector_extra_config": {"prefill": "boards:1", "prefill_mode": "near"}},
         "prefill_mode is 'near'"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], why: str) -> None:
    from vllm import LLM

    with pytest.raises(Exception, match=why):
        LLM(str(demo_model_path()), kv_transfer_config=transfer("boards:1") | change)


@pytest.fixture(scope="module")
def consumer(producer: Producer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    words = ["--served-model-name", "demo", "--kv-transfer-config",
             json.dumps(transfer(producer.worker))]  # fmt: skip
    log = tmp_path_factory.mktemp("consumer") / "log"
    running = VllmServer(words, log, LORA_BOARDS="4")
    try:
        running.wait()
        yield running
    finally:
        running.end()


def test_answers_and_metrics_say_so(
    producer: Producer, consumer: VllmServer, tokens_of: list[list[int]]
) -> None:
    client = consumer.client()
    with proxy(producer.server.port, consumer.port) as address:
        through = client.with_options(base_url=f"{address}/v1")
        one = {"model": "demo", "prompt": tokens_of[3], "max_tokens": 4, "temperature": 0}
        assert through.completions.create(**one).kv_transfer_params == {"prefill": "fast"}
    assert client.completions.create(**one).kv_transfer_params is None
    eventually_counted = [
        consumer.metric(f"vllm:boards_prefill_{name}_total", mode="fast")
        for name in ("prompts", "tokens")
    ]
    assert eventually_counted == [1, len(tokens_of[3]) - 1]
    assert consumer.metric("vllm:boards_prefill_prompts_total", mode="exact") == 0


def test_cancelled_requests_and_a_killed_producer(
    producer: Producer, consumer: VllmServer, tokens_of: list[list[int]]
) -> None:
    """200 requests through the proxy, every fourth client goes away, and in the middle the producer
    is killed: all others end, and no page is held."""
    with proxy(producer.server.port, consumer.port) as address:
        crowd(address, producer, tokens_of)
    consumer.settle()
    assert consumer.metric("vllm:kv_cache_usage_perc") == 0
    prompts = consumer.metric("vllm:boards_prefill_prompts_total", mode="fast")
    failed = consumer.metric("vllm:boards_prefill_failed_total")
    print(f"{prompts:.0f} of 200 prompts by vLLM, {failed:.0f} by boards in its place")
    assert 40 < prompts < 190 and failed > 0
    assert Path(f"/proc/{consumer.process.pid}").exists()
