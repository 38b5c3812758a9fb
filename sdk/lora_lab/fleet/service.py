"""Times of one request on a GPU and on a cluster of boards, alone on each (batch 1)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_lab.timing.designs import load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.model import decode_time
from lora_lab.timing.shape import kv_elements

if TYPE_CHECKING:
    from lora_lab.timing.gpus import Gpu
    from lora_lab.timing.target import Target
    from lora_sdk.model.spec import ModelConfig

_POINTS = 17  # of the curve of a cluster's time, which is close to linear


class Worker:
    """A GPU."""

    def __init__(self, gpu: Gpu, config: ModelConfig) -> None:
        self.gpu = gpu
        self.config = config
        self.name = gpu.name
        self.dollars: float | None = gpu.dollars

    def prefill(self, prompt: int) -> float:
        """Seconds of a prompt."""
        return self.gpu.prefill_seconds(self.config, prompt)

    def decode(self, prompt: int, response: int) -> float:
        """Seconds of all new tokens; a token's time is linear in its context."""
        return response * self.gpu.token_seconds(self.config, prompt + (response + 1) / 2)

    def joules(self, prefilling: float, decoding: float) -> float:
        """Of so many seconds in each stage."""
        return prefilling * self.gpu.prefill.watts + decoding * self.gpu.decode.watts

    def sequences(self, positions: int) -> int:
        """Sequences that its memory holds. RequestError if there is room for none."""
        found = self.gpu.sequences(self.config, positions)
        if not found:
            raise RequestError(
                f"{self.gpu.title}: {self.gpu.capacity_bytes / 2**30:.0f} GiB hold no sequence of "
                f"{positions} positions beside the model in FP16; take a smaller model"
            )
        return found


class Cluster:
    """Boards that compute one request at a time."""

    def __init__(self, target: Target, config: ModelConfig, dollars: float | None) -> None:
        self.target = target
        self.name = target.name
        self.dollars = dollars
        self.watts = target.boards * board_facts(target.board).power_watts
        self.kv_bytes = kv_elements(config) * load_design(target.name).kv_bytes  # of a position
        self._curve = lru_cache(maxsize=4)(self._time_curve)

    def prefill(self, prompt: int) -> float:
        """Seconds of a prompt, where no GPU computes it."""
        return self.target.prefill(prompt).seconds

    def decode(self, prompt: int, response: int, done: int = 0) -> float:
        """Seconds of the new tokens after the first `done` ones."""
        tokens, seconds = self._curve(prompt, response)
        return float(seconds[-1] - np.interp(done, tokens, seconds))

    def _time_curve(
        self, prompt: int, response: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts of new tokens, and the seconds that they take, of one request."""
        tokens = np.unique(np.linspace(0, response, _POINTS).round())
        each = [self.target.decode(prompt + max(1, int(count))).seconds for count in tokens]
        rates = np.array(each)
        steps = np.diff(tokens) * (rates[1:] + rates[:-1]) / 2
        seconds = np.concatenate(([0.0], np.cumsum(steps)))
        whole = decode_time(self.target, prompt + 1, response).seconds
        return tokens, seconds * (whole / seconds[-1])

    def joules(self, prefilling: float, decoding: float) -> float:
        """Of so many seconds in each stage."""
        return (prefilling + decoding) * self.watts


def exposed_transfer(prefill: float, layers: int, per_layer: float) -> float:
    """Seconds by which the hand-over of K and V outlasts the prompt's computation, where the layers
    before are transferred while a layer computes (GLITCHES, Figure 4)."""
    return max(per_layer, layers * per_layer - (layers - 1) * prefill / layers)
