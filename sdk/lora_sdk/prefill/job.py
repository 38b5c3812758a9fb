"""A prompt that a worker computes, and what it hands over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_sdk.adapters.weights import AdapterWeights
from lora_sdk.kv.kv_arrays import KvArrays, joined


@dataclass(frozen=True)
class Part:
    """K and V of a group of layers, `first_layer` and on, at `first_position` (a page's first) and
    on, in the boards' column order."""

    first_layer: int
    first_position: int
    kv: KvArrays


def joined_parts(parts: Sequence[Part]) -> KvArrays:
    """K and V of all layers and positions."""
    layers: dict[int, list[KvArrays]] = {}
    for part in sorted(parts, key=lambda one: (one.first_layer, one.first_position)):
        layers.setdefault(part.first_layer, []).append(part.kv)
    return joined([joined(group, 2) for group in layers.values()], 0)


@dataclass(frozen=True)
class JobAdapter:
    """The adapter of a prompt. `digest` tells different weights of one name apart."""

    digest: bytes
    weights: AdapterWeights


@dataclass
class PrefillUse:
    """Prompts that a worker has computed and handed over, and their tokens. `fast`: K and V are not
    the boards' bytes."""

    worker: str
    fast: bool = False
    prompts: int = 0
    tokens: int = 0


@dataclass(eq=False)  # compared by identity
class Job:
    """`tokens` to be computed. The worker's thread gives `parts`, then sets `logits`, FP32
    [vocabulary] of the last token, or `error`, and at last `done`. `wanted`: whether anybody still
    waits; it may be called from any thread."""

    tokens: Sequence[int]
    adapter: JobAdapter | None
    wanted: Callable[[], bool]
    parts: deque[Part] = field(default_factory=deque)  # given and not taken yet
    given: int = 0
    on_part: Callable[[], None] = lambda: None  # called after each
    logits: NDArray[np.float32] | None = None
    error: Exception | None = None
    done: bool = False
    resumed: bool = False  # after these tokens comes one that is known: no logits
    name: str | None = None  # under which a computer by name has the prompt
    digest: str = ""  # of the whole prompt, for those

    def give(self, part: Part) -> None:
        """Hand over a part."""
        self.parts.append(part)
        self.given += 1
        self.on_part()


class Computer(Protocol):
    """Computes K and V of prompts, `at_once` of them, each in a thread of its own.

    `by_name`: it has prompts that somebody else gave it under a name, and hands over K and V of all
    tokens but the last, without logits."""

    takes_adapters: bool
    by_name: bool
    at_once: int

    @property
    def context(self) -> int:
        """Max tokens of a prompt."""

    def compute(self, job: Job, give: Callable[[Part], None]) -> None:
        """Give all K and V of the job's tokens, each part as soon as it is known; sets its logits
        last. Ends early once the job is not wanted. Any exception is a failure of the worker."""

    def close(self) -> None:
        """Release everything, also while `parts` runs in another thread."""
