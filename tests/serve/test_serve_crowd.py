"""64 clients at once, of every kind: the texts are right and nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lora_sdk import Engine, SamplingParams, demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.served import Served, eventually, served

CLIENTS = 64
FOLDERS = demo_model_path().parent
PROMPTS = ("import os\n", "def f(x):\n", "class A:\n")


@pytest.fixture(scope="module")
def crowded() -> Iterator[Served]:
    speculation = SpeculationOptions("lookup", None, TreeShape.chain(4))

    def opened(progress: Any) -> Engine:
        engine = Engine(progress=progress, speculation=speculation, max_adapters=2)
        engine.load_adapter("plain", FOLDERS / "demo_adapter_lora")
        engine.load_adapter("blocks", FOLDERS / "demo_adapter_bdlora")
        return engine

    with served(opened, max_queue=40) as running:
        yield running


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def one_request(server: Served, rng: random.Random, wanted: dict[Any, str]) -> str:
    """One request of a random kind; how it ended. A wrong text is an assertion."""
    prompt, model = rng.choice(PROMPTS), rng.choice(("demo", "plain", "blocks"))
    body = {"prompt": prompt, "model": model, "max_tokens": 12, "seed": 9, "temperature": 0.8}
    kind = rng.choice(("whole", "stream", "drop", "slow", "grammar"))
    if kind == "grammar":
        got = server.post("/v1/completions", {**body, "guided_regex": "[a-c]{4}"})
        if got.status == 200:
            assert set(got.body["choices"][0]["text"]) <= set("abc")
        return str(got.status)
    if kind == "whole":
        got = server.post("/v1/completions", body)
        if got.status == 200:
            assert got.body["choices"][0]["text"] == wanted[prompt, model]
        return str(got.status)
    client = server.client()
    raw = client.completions.with_streaming_response
    text = ""
    with client, raw.create(stream=True, **body) as response:  # type: ignore[call-overload]
        for line in response.iter_lines():
            if kind == "drop":
                return "dropped"
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
            time.sleep(0.02 * (kind == "slow"))
    assert text == wanted[prompt, model]
    return "200"


def crowd(server: Served, seconds: float) -> Counter[str]:
    """CLIENTS clients that ask without a pause."""
    wanted = {}
    for prompt in PROMPTS:
        for model in ("demo", "plain", "blocks"):
            params = SamplingParams(
                max_tokens=12, seed=9, temperature=0.8, adapter=None if model == "demo" else model
            )
            wanted[prompt, model] = server.engine.generate(prompt, params).text  # type: ignore[union-attr]
    end = time.monotonic() + seconds

    def client(number: int) -> Counter[str]:
        rng, ends = random.Random(number), Counter[str]()
        while time.monotonic() < end:
            try:
                ends[one_request(server, rng, wanted)] += 1
            except Exception as error:
                status = getattr(error, "status_code", None)
                if status != 429:
                    raise
                ends["429"] += 1
                time.sleep(0.1)
        return ends

    with ThreadPoolExecutor(CLIENTS) as pool:
        total = sum(pool.map(client, range(CLIENTS)), Counter[str]())
    assert eventually(server.settled)
    return total


@pytest.mark.slow
def test_a_crowd_for_a_moment(crowded: Served) -> None:
    crowd(crowded, 1.0)
    assert eventually(lambda: crowded.service.attendants.count == 0)
    open_before = descriptors()
    ends = crowd(crowded, 4.0)
    assert set(ends) <= {"200", "429", "dropped"} and ends["200"] > 20 and ends["dropped"], ends
    assert eventually(lambda: descriptors() <= open_before + 2), (open_before, descriptors())
