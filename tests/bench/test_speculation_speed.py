"""Emulation's wall clock with drafts and without, token by token on the same prompts in turn."""

from __future__ import annotations

import heapq
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from lora_sdk import Engine, Result, SamplingParams, demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.spec.resolve import SpeculationRequest, Target, resolve
from lora_sdk.step.tree_shape import TreeShape

pytestmark = pytest.mark.bench

DRAFT = demo_model_path().parent / "demo_draft"
HEAD = demo_model_path().parent / "demo_eagle3"
OPTIONS = {
    "lookup": SpeculationOptions("lookup", None, TreeShape.chain(12)),
    "draft": SpeculationOptions("draft", DRAFT, TreeShape.chain(3)),
    "eagle3": SpeculationOptions("eagle3", HEAD, TreeShape.chain(2)),
}
ROUNDS = 2
GOAL = 1.2  # of plain decoding's tokens/s, with the best proposer
LEAST_AUTO = 0.95


def prompts() -> list[str]:
    """Held-out code that the demo model never saw."""
    texts = [Path(module.__file__ or "").read_text() for module in (heapq, textwrap)]
    return [text[start : start + 500] for text in texts for start in range(0, 8000, 2000)]


def seconds_a_token(engine: Engine, prompt: str, params: SamplingParams) -> float:
    began = time.perf_counter()
    result = engine.generate(prompt, params)
    assert isinstance(result, Result)
    spent = time.perf_counter() - began - result.timing.first_token
    return spent / (result.completion_tokens - 1)


@pytest.mark.parametrize("boards", [1, 4])
def test_tokens_a_second_with_drafts(boards: int, capsys: pytest.CaptureFixture[str]) -> None:
    params = SamplingParams(max_tokens=128, ignore_eos=True)
    found = resolve(
        SpeculationRequest("auto"), Target(demo_model_path(), "lora_f_u280", boards, True)
    )
    options = {"plain": None, **OPTIONS, "auto": found.options}
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(Engine(boards=boards, speculation=speculation))
            for name, speculation in options.items()
        }
        spent: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(ROUNDS):
            for prompt in prompts():
                for name, engine in engines.items():
                    spent[name].append(seconds_a_token(engine, prompt, params))
        ratio = {name: sum(spent["plain"]) / sum(times) for name, times in spent.items()}
        with capsys.disabled():
            print()
            for name, engine in engines.items():
                rate = len(spent[name]) / sum(spent[name])
                mean = 1.0 if engine.speculation is None else engine.speculation.mean_emitted
                print(
                    f"measured, {boards} emulated boards: {name} {rate:.0f} tokens/s, "
                    f"x{ratio[name]:.2f} of plain, {mean:.2f} tokens a verification"
                )
            print(f"goal: x{GOAL:.2f} with the best of them")
    assert found.table is None or found.table.objective == "wall"
    assert ratio["auto"] > LEAST_AUTO
