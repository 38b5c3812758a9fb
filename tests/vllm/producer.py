"""A stock vLLM server that computes prompts for boards, and the example's proxy before both."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from lora_sdk import Result
from tests.processes import ROOT
from tests.served import eventually
from tests.vllm.rig import STARTS
from tests.vllm.server import VllmServer, free_port

BOUND = 0.006  # of the logits' deviation
DEVIATION = 3.0  # of the demo model's logits
NAMES = (f"prompt-{number}" for number in count())


class Producer:
    """A vLLM server on this computer's cores, with the connector."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.socket = kind, folder / "kv.sock"
        transfer = {
            "kv_connector": "LoraBoardsConnector", "kv_role": "kv_producer",
            "kv_connector_module_path": "lora_vllm.connector",
            "kv_connector_extra_config": {"socket": str(self.socket)},
        }  # fmt: skip
        words = ["--served-model-name", "demo", "--dtype", kind, "--enforce-eager",
                 "--max-num-batched-tokens", 256, "--kv-transfer-config",
                 json.dumps(transfer)]  # fmt: skip
        self.server = VllmServer(words, folder / "log")
        try:
            self.server.wait()
        except BaseException:
            self.server.end()
            raise

    @property
    def worker(self) -> str:
        """Its name as a worker."""
        return f"vllm:{self.socket}"

    def compute(self, tokens: Sequence[int], name: str) -> dict[str, Any]:
        """Let vLLM compute a prompt."""
        body = {"model": "demo", "prompt": list(map(int, tokens)), "max_tokens": 1,
                "kv_transfer_params": {"do_remote_decode": True, "id": name}}  # fmt: skip
        url = f"http://127.0.0.1:{self.server.port}/v1/completions"
        asked = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urlopen(asked, timeout=120) as got:
            return dict(json.loads(got.read()))


def prompts_of(tokenizer: Any) -> list[list[int]]:
    """50 prompts as tokens, some within a page, some of several hundred."""
    long = "".join(f"value_{n} = {n * n}\n" for n in range(60))
    texts = [long[: n % 5 * 150] + STARTS[n % len(STARTS)] + f"  # {n}\n" for n in range(50)]
    return [list(tokenizer.encode(text)) for text in texts]


def differing(own: Sequence[Result], found: Sequence[Sequence[int]]) -> int:
    """How many greedy texts are not the boards' own, which have `logprobs=2`. Each is up to a token
    whose margin is within what K and V may change."""
    different = 0
    for mine, other in zip(own, found, strict=True):
        pairs = enumerate(zip(mine.token_ids, other, strict=False))
        at = next((index for index, (a, b) in pairs if a != b), None)
        if at is not None:
            different += 1
            assert mine.outputs[0].logprobs is not None
            first, second = (one.logprob for one in mine.outputs[0].logprobs[at].top)
            assert first - second < 3 * BOUND * DEVIATION
    return different


@contextmanager
def proxy(prefill: int, decode: int) -> Iterator[str]:
    """examples/serve/vllm_proxy.py before both servers. Yields its address."""
    import uvicorn

    path = ROOT / "examples" / "serve" / "vllm_proxy.py"
    spec = importlib.util.spec_from_file_location("vllm_proxy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = module.make_app(f"http://127.0.0.1:{prefill}", f"http://127.0.0.1:{decode}")
    port = free_port()
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        assert eventually(lambda: running.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(60)


def crowd(address: str, producer: Producer, tokens_of: Sequence[list[int]]) -> None:
    """200 requests by twelve clients through a proxy at `address`, of which every fourth goes away;
    behind the 60th answer the producer is killed. All others end."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{address}/v1", api_key="-", max_retries=0, timeout=120)
    done = count()

    def ask(number: int) -> int | None:
        tokens = [*tokens_of[number % len(tokens_of)], 100 + number]
        with client.completions.create(
            model="demo", prompt=tokens, max_tokens=12, temperature=0, stream=True,
            extra_body={"ignore_eos": True},
        ) as stream:  # fmt: skip
            deltas = 0
            for event in stream:
                deltas += bool(event.choices)
                if number % 4 == 0:
                    return None
        if next(done) == 60:
            os.killpg(producer.server.process.pid, signal.SIGKILL)
        return deltas

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, range(200)))
    assert all(found[number] for number in range(200) if number % 4)
    assert producer.server.process.wait() == -signal.SIGKILL
