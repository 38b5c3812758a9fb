"""Replicas on three Ray nodes, behind the server: the texts of one engine, whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lora_cluster.replicas.connection import connected
from lora_host.errors import LoraError, RequestError
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.serve.constraint import Compiler
from tests.replicas.conftest import RayNodes
from tests.served import Served, eventually, served_backend

pytestmark = pytest.mark.ray
MODELS = Path(__file__).resolve().parents[2] / "models"
ADAPTERS = {"lora": MODELS / "demo_adapter_lora", "bd": MODELS / "demo_adapter_bdlora"}
PROMPTS = (
    "import os\n", "def f(x):\n    ", "class Été:\n", "# →", "x = [1, 2", "\n",
    "def add(a, b):\n    \"\"\"Return the sum of the two numbers a and b.\"\"\"\n    return ",
)  # fmt: skip
OPTIONS: dict[str, Any] = {
    "context": 192, "max_sequences": 4, "threads": 1, "max_adapters": 1, "max_adapter_rank": 64,
}  # fmt: skip
REQUESTS = 300


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(**{**OPTIONS, "max_sequences": 16}) as one:
        for name, path in ADAPTERS.items():
            one.load_adapter(name, path)
        yield one


@pytest.fixture(scope="module")
def fleet(nodes: RayNodes) -> Iterator[Any]:
    with connected(nodes.address, "the test", nodes.token):
        from lora_cluster.replicas.pool import open_replicas
        from lora_cluster.replicas.replica import ReplicaOptions

        with open_replicas(3, ReplicaOptions("u280", 1, OPTIONS)) as replicas:
            for name, path in ADAPTERS.items():
                replicas.load_adapter(name, path)
            yield replicas


def draw(seed: int) -> tuple[str, str | None, dict[str, Any]]:
    """A prompt, an adapter and fields in the words that server and engine share."""
    rng = random.Random(seed)
    fields: dict[str, Any] = {
        "max_tokens": rng.randint(2, 14),
        "temperature": rng.choice((0.0, 0.7, 1.2)),
        "seed": rng.randrange(2**32),
        "n": rng.choice((1, 1, 1, 2)),
        "ignore_eos": True,
    }
    optional = {"presence_penalty": 0.8, "stop": ["\n\n", "im"], "top_k": 20}
    fields |= {name: value for name, value in optional.items() if rng.random() < 0.25}
    return rng.choice(PROMPTS), rng.choice((None, None, "lora", "bd")), fields


def texts(result: Any) -> list[str]:
    assert isinstance(result, Result)
    return [output.text for output in result.outputs]


def asked(server: Served, seed: int) -> list[str]:
    """The texts of a request, every other one streamed."""
    prompt, adapter, fields = draw(seed)
    client = server.client()
    known = ("ignore_eos", "top_k")
    more = {name: fields.pop(name) for name in known if name in fields}
    made: Any = client.completions.create
    common = {"model": adapter or "demo", "prompt": prompt, "extra_body": more, **fields}
    if seed % 2:
        return [choice.text for choice in made(**common).choices]
    found = [""] * fields["n"]
    for chunk in made(stream=True, **common):
        for choice in chunk.choices:
            found[choice.index] += choice.text
    return found


def test_requests_outlive_a_node(nodes: RayNodes, fleet: Any, engine: Engine) -> None:
    drawn = [draw(seed) for seed in range(REQUESTS)]
    expected = engine.generate(
        [prompt for prompt, _, _ in drawn],
        [SamplingParams(adapter=adapter, **fields) for _, adapter, fields in drawn],
    )
    assert isinstance(expected, list)
    from lora_cluster.replicas.serving import ReplicaBackend

    backend = ReplicaBackend(fleet, WeightNotices())
    victim = next(one for one in fleet.replicas if one.opened.node != nodes.ids[0])
    counted, killed = threading.Semaphore(0), []

    def one(seed: int) -> list[str]:
        try:
            return asked(server, seed)
        finally:
            counted.release()

    def kill() -> None:
        for _ in range(REQUESTS // 3):
            counted.acquire()
        before = victim.opened.pid
        nodes.end_node(victim.opened.node)
        killed.append(before)

    with (
        served_backend(lambda progress: backend, max_queue=REQUESTS) as server,
        ThreadPoolExecutor(24) as pool,
    ):
        killing = threading.Thread(target=kill)
        killing.start()
        found = list(pool.map(one, range(REQUESTS)))
        killing.join()
        assert found == [texts(result) for result in expected]
        assert fleet.use.rescued >= 1 and fleet.use.failed
        assert eventually(lambda: all(place.failure is None for place in fleet.places), 300)
        assert victim.opened.pid not in killed and victim.opened.node in nodes.ids
        assert all(place.begun + place.taken > REQUESTS // 10 for place in fleet.places)
        rows = server.get("/status").body["boards"]
        assert {row["state"] for row in rows} == {"running"} and len(rows) == 3
        fleet.close = lambda: None  # the server closes what it serves; other tests need it
    del fleet.close


CASES: dict[str, SamplingParams] = {
    "greedy": SamplingParams(max_tokens=40, ignore_eos=True),
    "sampled": SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.9, seed=5, logprobs=2),
    "two samples": SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=6, n=2),
    "adapter": SamplingParams(
        max_tokens=40, ignore_eos=True, adapter="lora", prompt_logprobs=1, presence_penalty=1.0
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stream_outlives_its_replica(case: str, fleet: Any, engine: Engine) -> None:
    """Its process is killed after a few tokens; none comes twice, none is left out."""
    params, prompt = CASES[case], PROMPTS[-1]
    expected, found = [], []
    engine.generate(prompt, params, on_delta=expected.append)
    rescued = fleet.use.rescued

    def received(delta: Any) -> None:
        found.append(delta)
        if len(found) == 6:
            place = next(place for place in fleet.places if place.tickets)
            os.kill(place.engine.opened.pid, signal.SIGKILL)

    fleet.generate(prompt, params, on_delta=received)

    def by_sample(deltas: list[Any]) -> list[Any]:  # samples of one request come in any order
        return sorted(deltas, key=lambda delta: delta.index)

    assert by_sample(found) == by_sample(expected)
    assert fleet.use.rescued == rescued + 1
    assert eventually(lambda: all(place.failure is None for place in fleet.places), 300)


def test_beams_on_a_replica(fleet: Any, engine: Engine) -> None:
    params = BeamSearchParams(beam_width=3, n=2, max_tokens=12)
    expected, found = engine.generate(PROMPTS[0], params), fleet.generate(PROMPTS[0], params)
    assert isinstance(expected, Result) and isinstance(found, Result)
    assert found.outputs == expected.outputs


def test_a_grammar_is_kept_on_a_replica(fleet: Any, engine: Engine) -> None:
    compiler = Compiler(engine)
    grammar = 'start: "[" NUMBER ("," NUMBER)* "]"\nNUMBER: /[0-9]{1,3}/'
    allowed = compiler.compiled(grammar, 1)
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=3, allowed_tokens=allowed)
    expected = engine.generate(PROMPTS[0], params)
    assert texts(fleet.generate(PROMPTS[0], params)) == texts(expected)
    with pytest.raises(RequestError, match="allowed_tokens is a function of this program"):
        fleet.generate(PROMPTS[0], SamplingParams(allowed_tokens=lambda emitted: None))


def test_a_prefix_draws_requests_to_one_replica(fleet: Any) -> None:
    prompt = "# " + "a long beginning of many tokens, " * 12
    params = SamplingParams(max_tokens=2)
    first = fleet.generate(prompt + "first", params)
    assert isinstance(first, Result) and first.cached_tokens < 64  # the first ones may be known
    for end in ("second", "third", "fourth"):
        result = fleet.generate(prompt + end, params)
        assert isinstance(result, Result) and result.cached_tokens >= 64


def test_boards_that_are_not_there_are_named(nodes: RayNodes, fleet: Any) -> None:
    from lora_cluster.replicas.pool import open_replicas
    from lora_cluster.replicas.replica import ReplicaOptions

    with pytest.raises(LoraError, match=r"replica 0: .*vrtd"):
        open_replicas(1, ReplicaOptions("v80", 1, {}))
    with pytest.raises(
        RequestError, match=r"8 replicas need 1 board \(u280\) .*\(fpga_u280: .*: 2"
    ):
        open_replicas(8, ReplicaOptions("u280", 1, {}))
