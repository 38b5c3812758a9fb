"""vLLM's server as a process on 1, 2 and 4 emulated boards, with clients that come and go."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lora_sdk import Engine, SamplingParams
from tests.processes import ROOT
from tests.vllm.rig import prompts
from tests.vllm.server import END_S, VllmServer

pytestmark = pytest.mark.vllm
CLIENTS = 16
ADAPTER = ROOT / "models" / "demo_adapter_lora"


@pytest.fixture(scope="module", params=[1, 2, 4])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    words = [
        "--served-model-name", "demo", "--shutdown-timeout", END_S, "--enable-lora",
        "--max-lora-rank", 8, "--lora-modules", f"plain={ADAPTER}", "--structured-outputs-config",
        json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("vllm") / "log"
    running = VllmServer(words, log, LORA_BOARDS=str(request.param))
    try:
        running.wait()
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(max_adapters=1) as opened:
        opened.load_adapter("plain", ADAPTER)
        yield opened


def texts_of(server: VllmServer, model: str, texts: list[str], tokens: int) -> list[str]:
    """Greedy texts by clients that ask at once."""
    client = server.client()

    def ask(text: str) -> str:
        got = client.completions.create(model=model, prompt=text, max_tokens=tokens, temperature=0)
        return got.choices[0].text

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(ask, texts))


def test_greedy_texts_of_100_requests(server: VllmServer, engine: Engine) -> None:
    texts = prompts(100)
    want = [one.text for one in engine.generate(texts, SamplingParams(max_tokens=32))]
    assert texts_of(server, "demo", texts, 32) == want
    assert server.metric("vllm:prefix_cache_hits_total") > 0


def test_an_adapter_beside_the_model(server: VllmServer, engine: Engine) -> None:
    texts = prompts(12)
    params = SamplingParams(max_tokens=16, adapter="plain")
    want = [one.text for one in engine.generate(texts, params)]
    assert texts_of(server, "plain", texts, 16) == want


def test_a_json_schema_by_the_servers_own_field(server: VllmServer) -> None:
    schema = {"type": "object", "properties": {"name": {"enum": ["a", "b"]}},
              "required": ["name"], "additionalProperties": False}  # fmt: skip
    got = server.client().completions.create(
        model="demo", prompt="# JSON\n", max_tokens=40, temperature=0.7,
        extra_body={"structured_outputs": {"json": schema}},
    )  # fmt: skip
    assert json.loads(got.choices[0].text)["name"] in ("a", "b")


def test_cancelled_requests_leave_no_page(server: VllmServer, engine: Engine) -> None:
    """50 of 200 clients go away after their first token."""
    texts = prompts(200)
    client = server.client()

    def ask(number: int) -> str | None:
        with client.completions.create(
            model="demo", prompt=texts[number], max_tokens=24, temperature=0, stream=True
        ) as stream:
            found = ""
            for event in stream:
                found += event.choices[0].text if event.choices else ""
                if number % 4 == 0:
                    return None
            return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(ask, range(200)))
    kept = [number for number in range(200) if number % 4]
    params = SamplingParams(max_tokens=24)
    want = [one.text for one in engine.generate([texts[n] for n in kept], params)]
    assert [found[number] for number in kept] == want
    server.settle()
    assert server.metric("vllm:kv_cache_usage_perc") == 0


def test_sigterm_lets_requests_end(server: VllmServer) -> None:
    client, found = server.client(), []

    def ask(number: int) -> None:
        got = client.completions.create(
            model="demo", prompt=f"def f{number}(", max_tokens=400, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        found.append(got.usage.completion_tokens if got.usage else 0)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    while server.metric("vllm:num_requests_running") < len(threads):
        assert any(thread.is_alive() for thread in threads)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(END_S)
    assert found == [400] * 8
    assert server.process.wait(END_S) == 0
    lines = server.log.read_text().splitlines()
    assert not [line for line in lines if "(EngineCore" in line and " ERROR " in line]
