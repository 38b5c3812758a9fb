"""An engine with a worker that computes prompts, and a gate that stops the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from lora_sdk import Engine, Result
from lora_sdk.prefill.job import Job, Part

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(900)]
LONG = TOKENS[:200]


def opened(
    folder: Path, boards: int = 1, prefill: str | None = "boards:1", **options: Any
) -> Engine:
    options = {"max_sequences": 4, "threads": 1, **options}
    return Engine(folder, boards=boards, prefill=prefill, **options)


def held(engine: Engine) -> int:
    """Pages in use, without those that leave with the next header."""
    engine._stepper.flush()
    return engine.kv_use.held


def wanted(model: Path) -> Any:
    with opened(model, 2, None) as engine:
        result = engine.generate(LONG, max_tokens=6, logprobs=2)
        assert isinstance(result, Result)
        return result.outputs


class Gate:
    """Stops the worker before its part of that number. `then`: once, behind the first stop."""

    def __init__(self, engine: Engine, part: int, then: Callable[[], None] = lambda: None) -> None:
        assert engine._workers is not None
        self.computer = engine._workers._worker._computer
        self.reached, self.open = threading.Event(), threading.Event()
        self._part, self._then, self._compute = part, then, self.computer.compute
        self.handed: list[int] = []  # numbers of parts

    def __enter__(self) -> Gate:
        self.computer.compute = self._gated  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self.computer.compute = self._compute  # type: ignore[method-assign]

    def _gated(self, job: Job, give: Callable[[Part], None]) -> None:
        self.job = job
        numbers = count()

        def gated(part: Part) -> None:
            number = next(numbers)
            if number == self._part:
                self.reached.set()
                self.open.wait(20)
                then, self._then = self._then, lambda: None  # the worker may come here again
                then()
            self.handed.append(number)
            give(part)

        self._compute(job, gated)
