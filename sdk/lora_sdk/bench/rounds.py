"""One round: a model is loaded, continues a prompt, and is given back; memory is measured between.

All figures of a round are taken within seconds of each other, because a machine's speed moves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk.bench.memory import ReadBuffer, copy_bandwidth
from lora_sdk.options import TIMED
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_sdk.engine import Engine
    from lora_sdk.results import Piece

WARM_TOKENS = 4  # decoded before the clock: pages of results and KV become real


@dataclass(frozen=True)
class Workload:
    """What a round runs. `prompt` and `tokens` count tokens; `threads` is for the memory figures,
    the engine takes all cores of the process."""

    model: Path | None
    boards: int
    threads: int
    prompt: int
    tokens: int
    overlay: str | None = None  # the one that takes the model


@dataclass(frozen=True)
class Round:
    """Measured: tokens and bytes a second; seconds a decode step, whole and outside the kernels."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    step_seconds: float
    host_seconds_per_step: float
    loading_bytes_per_second: float
    check_bytes_per_second: float
    copy_bytes_per_second: float
    read_bandwidth_bytes_per_second: float
    share_of_read_bandwidth: float
    share_of_copy_bandwidth: float
    reader: str


class _Loading:
    """Hears the loader: time and bytes from its first word to its last."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.bytes = 0

    def __call__(self, done: int, total: int) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self.ended
        self.bytes = total


class _FirstToken:
    """Notes the time and the kernels' time when the first token comes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.at = 0.0
        self.kernels = 0.0

    def __call__(self, piece: Piece) -> None:
        if not self.at and piece.token_id is not None:
            self.at, self.kernels = time.perf_counter(), kernel_seconds(self._engine)


def run_round(work: Workload, buffer: ReadBuffer, token_bytes: int) -> Round:
    """One round; `token_bytes` are read in a decode step. PlacementError where the boards cannot
    hold prompt and tokens."""
    from lora_sdk.engine import Engine

    loading = _Loading()
    context = -(-(work.prompt + work.tokens + 1) // abi.TILE_POSITIONS) * abi.TILE_POSITIONS
    with Engine(
        work.model, boards=work.boards, overlay=work.overlay, kernels=TIMED, max_sequences=1,
        context=context, progress=loading,
    ) as engine:  # fmt: skip
        began = time.perf_counter()
        engine.check_weights()
        check = time.perf_counter() - began
        prompt = random_prompt(engine, work.prompt)
        engine.generate(prompt, SamplingParams(max_tokens=WARM_TOKENS, ignore_eos=True))
        readers = buffer.bandwidth(work.threads)
        decode, prefill, host = _generate(engine, prompt, work.tokens)
        later = buffer.bandwidth(work.threads)
        files = sorted(engine.model_path.glob("*.safetensors"))
    reader, bandwidth = max(
        ((name, max(value, later[name])) for name, value in readers.items()), key=lambda it: it[1]
    )
    copied = copy_bandwidth(files, work.threads)
    placed = loading.bytes / (loading.ended - loading.began)
    return Round(
        prefill_tokens_per_second=work.prompt / prefill,
        decode_tokens_per_second=1 / decode,
        step_seconds=decode,
        host_seconds_per_step=host,
        loading_bytes_per_second=placed,
        check_bytes_per_second=loading.bytes / check,
        copy_bytes_per_second=copied,
        read_bandwidth_bytes_per_second=bandwidth,
        share_of_read_bandwidth=token_bytes / decode / bandwidth,
        share_of_copy_bandwidth=placed / copied,
        reader=reader,
    )


def _generate(engine: Engine, prompt: list[int], tokens: int) -> tuple[float, float, float]:
    """Seconds of a decode step, of the prefill up to its token, and of a step outside kernels."""
    first = _FirstToken(engine)
    params = SamplingParams(max_tokens=tokens + 1, ignore_eos=True)
    began = time.perf_counter()
    engine.generate(prompt, params, on_piece=first)
    ended, kernels = time.perf_counter(), kernel_seconds(engine)
    seconds = ended - first.at
    return seconds / tokens, first.at - began, (seconds - (kernels - first.kernels)) / tokens


def random_prompt(engine: Engine, length: int) -> list[int]:
    """The same tokens in every round."""
    if length < 1:
        raise RequestError(f"a prompt of {length} tokens; expected at least one")
    ids = np.random.default_rng(0).integers(0, engine.config.vocabulary, length)
    return [int(token) for token in ids]


def kernel_seconds(engine: Engine) -> float:
    """Wall clock spent in kernels since the boards were opened."""
    emulated = engine.cluster.emulated
    if emulated is None:
        raise RequestError("lora bench measures emulated boards; real ones are open")
    return emulated.kernel_seconds
