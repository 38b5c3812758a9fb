"""The requests of a soak: what each kind asks for. Equal requests have equal texts, whatever runs
beside them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from urllib.request import Request, urlopen

from lora_sdk.engine.engine import Engine
from lora_sdk.model.demo import demo_model_path
from lora_sdk.sampling import SamplingParams
from lora_sdk.sampling.beam_params import BeamSearchParams
from lora_sdk.step.results import Result

FOLDERS = demo_model_path().parent
ADAPTERS = {"plain": FOLDERS / "demo_adapter_lora", "blocks": FOLDERS / "demo_adapter_bdlora"}
PROMPTS = ("import os\n", "def f(x):\n", "class A:\n", "for i in range(3):\n")
ECHO = "a = b + c\na = b + c\na = b + c\na = "
"""Repeats itself: look-up drafts are right."""
TOKENS = 12
ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class Asked:
    """A request: its kind and its prompt's number."""

    kind: str
    prompt: int


Act = Callable[[Engine, str, str], str]  # engine, prompt, URL of the server


def _text(result: Result | list[Result]) -> str:
    results = result if isinstance(result, list) else [result]
    return "\0".join(sample.text for one in results for sample in one.outputs)


def _params(**more: object) -> SamplingParams:
    return SamplingParams(max_tokens=TOKENS, ignore_eos=True, **more)  # type: ignore[arg-type]


def _of(**more: object) -> Act:
    return lambda engine, prompt, url: _text(engine.generate(prompt, _params(**more)))


def _tree(engine: Engine, prompt: str, url: str) -> str:
    return _text(engine.generate(prompt + ECHO, _params()))


def _several(engine: Engine, prompt: str, url: str) -> str:
    return _text(engine.generate(list(PROMPTS), _params()))


def _beams(engine: Engine, prompt: str, url: str) -> str:
    return _text(engine.beam_search(prompt, BeamSearchParams(max_tokens=6, beam_width=3, n=3)))


def _stream(engine: Engine, prompt: str, url: str) -> str:
    return "".join(delta.text for delta in engine.stream(prompt, _params()))


def _served(engine: Engine, prompt: str, url: str) -> str:
    body = {"model": "soak", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0.8, "seed": 3}
    body["ignore_eos"] = True
    asked = Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urlopen(asked, timeout=ANSWER_SECONDS) as got:
        return str(json.loads(got.read())["choices"][0]["text"])


KINDS: dict[str, Act] = {
    "greedy": _of(),
    "sampled": _of(temperature=0.8, seed=9),
    "adapter plain": _of(adapter="plain"),
    "adapter blocks": _of(adapter="blocks", temperature=0.6, seed=2),
    "tree": _tree,
    "several": _several,
    "beams": _beams,
    "stream": _stream,
    "server": _served,
}
"""A further kind of request is a row."""


def ask(engine: Engine, asked: Asked, url: str) -> str:
    """The text of a request."""
    return KINDS[asked.kind](engine, PROMPTS[asked.prompt], url)


def all_requests() -> list[Asked]:
    """Each kind with each prompt."""
    return [Asked(kind, prompt) for kind in KINDS for prompt in range(len(PROMPTS))]


def drawn(draws: random.Random) -> Asked:
    """One of them."""
    return Asked(draws.choice(tuple(KINDS)), draws.randrange(len(PROMPTS)))
