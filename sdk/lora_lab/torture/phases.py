"""Phases of an engine's life in which faults strike. Each returns the text that the oracle compares
and calls `watch.strike` where steps alone do not say when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lora_host import abi
from lora_lab.torture.rig import Watch
from lora_sdk.engine.engine import Engine
from lora_sdk.sampling import SamplingParams
from lora_sdk.step.results import Result

PROMPT = [(7 * i) % 200 + 3 for i in range(12)]
LONG = [(3 * i) % 200 + 3 for i in range(130)]
ECHO = [11, 12, 13, 14, 15, 16] * 4
TRIGGER = "done lost"
"""The fault that makes boards recover, where a recovery itself is disturbed."""


@dataclass(frozen=True)
class Phase:
    """`act`: on an open engine. `opens`: faults strike while one opens; `shuts`: it is closed, and
    needs another afterwards. `triggered`: faults strike once boards are restored."""

    act: Callable[[Engine, Watch], Any]
    speculative: bool = False
    opens: bool = False
    shuts: bool = False
    triggered: bool = False


def _told(result: Any) -> list[Any]:
    results = result if isinstance(result, list) else [result]
    assert all(isinstance(one, Result) for one in results)
    return [
        (
            list(sample.token_ids),
            [one.chosen.logprob for one in sample.logprobs or ()],
            sample.finish_reason,
        )
        for one in results
        for sample in one.outputs
    ]


def _text(engine: Engine, prompt: list[int], tokens: int, adapter: str | None = None) -> list[Any]:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, adapter=adapter, logprobs=1)
    return _told(engine.generate(prompt, params))


def prefill(engine: Engine, watch: Watch) -> Any:
    """A prompt of several steps."""
    return _text(engine, LONG, 3)


def decode(engine: Engine, watch: Watch) -> Any:
    """Two sequences, one of them sampled."""
    greedy = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=1)
    sampled = SamplingParams(max_tokens=5, ignore_eos=True, logprobs=1, temperature=0.9, seed=5)
    return _told(engine.generate([PROMPT, PROMPT[:5]], [greedy, sampled]))


def own_loop(engine: Engine, watch: Watch) -> Any:
    """A text that the boards generate by themselves: faults strike after a token each."""
    count = 0

    def told(_: object) -> None:
        nonlocal count
        watch.strike(100 + count)
        count += 1

    watch.before = {100 + at: plants for at, plants in watch.before.items()}
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    return _told(engine.generate(PROMPT, params, on_delta=told))


def verify(engine: Engine, watch: Watch) -> Any:
    """Trees of drafts."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    return _told(engine.generate(ECHO, params))


def adapter_load(engine: Engine, watch: Watch) -> Any:
    """An adapter takes another's slot, of which nothing can be summed any more then."""
    first = _text(engine, PROMPT, 2, "a")
    engine.confirm()
    watch.strike(watch.steps)
    return first + _text(engine, PROMPT, 3, "b")


def hand_over(engine: Engine, watch: Watch) -> Any:
    """K and V are read from one sequence and written into another, which goes on."""
    found = []
    first = engine.open_sequence()
    second = None
    try:
        engine.prefill(first, PROMPT)
        watch.strike(watch.steps)
        kv = engine.export_kv(first)
        second = engine.import_kv(PROMPT, kv)
        found = [engine.prefill(one, PROMPT[:3]).tobytes() for one in (first, second)]
    finally:
        for one in (first, second):
            if one is not None and engine.lost is None:
                engine.release(one)
    return [found[0].hex()[:64], found[0] == found[1]]


def idle(engine: Engine, watch: Watch) -> Any:
    """After an engine has opened."""
    return _text(engine, PROMPT, 2)


def links(engine: Engine, watch: Watch) -> Any:
    """Links come up and are tested."""
    watch.strike(0)
    if engine.cluster.size > 1:
        engine.cluster.links_up(engine.cluster.cables)
    return "up"


def close(engine: Engine, watch: Watch) -> Any:
    """In the middle of a text that is given up."""
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    stream = engine.stream(PROMPT, params)
    next(iter(stream))
    watch.strike(0)
    engine.close()
    return "closed"


def trigger(board: int) -> tuple[int, int]:
    """Board and fault of the emulator that begin a recovery."""
    return board, abi.FAULT_DONE_LOST | abi.FAULT_UNTIL_RESET


PHASES: dict[str, Phase] = {
    "prefill": Phase(prefill),
    "decode": Phase(decode),
    "own loop": Phase(own_loop),
    "verify": Phase(verify, speculative=True),
    "adapter load": Phase(adapter_load),
    "hand-over": Phase(hand_over),
    "recovery": Phase(decode, triggered=True),
    "load": Phase(idle, opens=True, shuts=True),
    "links": Phase(links),
    "close": Phase(close, shuts=True),
}
