"""Streamed text equals unstreamed equals the engine's, for random requests with seeds."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lora_sdk import SamplingParams
from lora_sdk.step.results import Result
from tests.served import Served

PROMPTS = ("import os\n", "def f(x):\n    ", "class Été:\n", "# →", "x = [1, 2", "\n")
REQUESTS = 200


def draw(seed: int) -> tuple[str, dict[str, Any]]:
    """A random request, fields in the words that server and engine share."""
    rng = random.Random(seed)
    fields: dict[str, Any] = {
        "max_tokens": rng.randint(1, 10),
        "temperature": rng.choice((0.0, 0.5, 1.0, 1.7)),
        "seed": rng.randrange(2**32),
        "n": rng.choice((1, 1, 1, 3)),
    }
    optional = {
        "top_p": rng.uniform(0.3, 1), "top_k": rng.randint(1, 50), "min_p": rng.uniform(0, 0.2),
        "presence_penalty": rng.uniform(-2, 2), "frequency_penalty": rng.uniform(-2, 2),
        "repetition_penalty": rng.uniform(0.8, 1.5), "stop": rng.sample(("\n", "e", "im", " "), 2),
        "logprobs": rng.randint(0, 3), "ignore_eos": True, "min_tokens": 1,
        "logit_bias": {str(rng.randrange(4096)): rng.uniform(-5, 5)},
    }  # fmt: skip
    fields |= {name: value for name, value in optional.items() if rng.random() < 0.25}
    return rng.choice(PROMPTS), fields


def test_random_requests(server: Served) -> None:
    client = server.client()

    def compare(seed: int) -> int:
        prompt, fields = draw(seed)
        named = {"model": "demo", "prompt": prompt, "extra_body": fields}
        whole = client.completions.create(**named)  # type: ignore[call-overload]
        texts: Counter[int] = Counter()
        streamed = {index: "" for index in range(fields["n"])}
        for chunk in client.completions.create(stream=True, **named):  # type: ignore[call-overload]
            choice = chunk.choices[0]
            streamed[choice.index] += choice.text
            texts[choice.index] += bool(choice.text)
        params = {
            **fields,
            "logit_bias": {int(k): v for k, v in fields.get("logit_bias", {}).items()},
        }
        want = server.engine.generate(prompt, SamplingParams(**params))
        assert isinstance(want, Result)
        expected = [output.text for output in want.outputs]
        assert [choice.text for choice in whole.choices] == expected, (seed, fields)
        assert list(streamed.values()) == expected, (seed, fields)
        reasons = [output.finish_reason for output in want.outputs]
        assert [choice.finish_reason for choice in whole.choices] == reasons
        return texts.total()

    with ThreadPoolExecutor(6) as pool:
        chunks = sum(pool.map(compare, range(REQUESTS)))
    assert chunks > 3 * REQUESTS  # it was streamed, not sent whole
