"""One round: load a model, decode from a prompt, unload it, and measure memory in between.

All figures of a round are taken within seconds of each other, because a machine's speed varies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.bench.memory import ReadBuffer, WarmPages, copy_bandwidth, read_files
from lora_sdk.model.demo import demo_model_path
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_host.emulated import Emulated, UnitSeconds
    from lora_sdk.engine.engine import Engine
    from lora_sdk.step.results import Delta

WARM_TOKENS = 4  # decoded before timing starts: touches the pages of results and KV
READ_EVERY = 16  # tokens between two memory measurements


@dataclass(frozen=True)
class Workload:
    """The workload of a round. `prompt`, `tokens`: numbers of prompt and new tokens. `threads`: for
    kernels, loading and memory measurements."""

    model: Path | None
    boards: int
    threads: int
    prompt: int
    tokens: int
    overlay: str | None = None  # None: the default for the model


@dataclass(frozen=True)
class Round:
    """Measured figures of one round. The seconds of a decode step split into kernels (MPU, VFU),
    DMA moves, Router frames, and the host with all other work: firmware, scheduling, host library
    and passing the token to the callback."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    step_seconds: float
    kernel_seconds_per_step: float
    move_seconds_per_step: float
    link_seconds_per_step: float
    host_seconds_per_step: float
    loading_bytes_per_second: float
    check_bytes_per_second: float
    copy_bytes_per_second: float
    read_bandwidth_bytes_per_second: float
    share_of_read_bandwidth: float
    share_of_copy_bandwidth: float
    reader: str


class _Loading:
    """Progress callback of loading: the times of the first and last report, and the bytes. Calls
    `first` before the first."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._first = first
        self.began = self.ended = 0.0
        self.bytes = 0

    def __call__(self, done: int, total: int) -> None:
        if not self.began:
            self._first()
        self.ended = time.perf_counter()
        self.began = self.began or self.ended
        self.bytes = total


class _FirstToken:
    """Records the time of the first token and the result of `also` at that time."""

    def __init__(self, also: Callable[[], UnitSeconds] | None = None) -> None:
        self._also = also
        self.at = 0.0
        self.units: UnitSeconds | None = None

    def __call__(self, delta: Delta) -> None:
        if not self.at and delta.token_id is not None:
            self.units = self._also() if self._also is not None else None
            self.at = time.perf_counter()


class _Steps:
    """Times the steps from token to token, and measures memory after every READ_EVERY of them, so
    that both see the same state of the machine. The step after a memory measurement is not counted:
    the caches of boards and firmware are cold then."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._since = 0.0  # start of the current step, 0 if it is not counted
        self._tokens = 0
        self.first = 0.0
        self.seconds: list[float] = []

    def __call__(self, delta: Delta) -> None:
        if delta.token_id is None:
            return
        now = time.perf_counter()
        self.first = self.first or now
        if self._since:
            self.seconds.append(now - self._since)
        self._tokens += 1
        self._since = 0.0
        if self._tokens % READ_EVERY == 0:
            self._read()
        else:
            self._since = time.perf_counter()


class _Readings:
    """Bandwidths of the readers, as the sum of seconds per byte over all measurements."""

    def __init__(self, buffer: ReadBuffer, threads: int) -> None:
        self._buffer, self._threads = buffer, threads
        self._seconds: dict[str, float] = {}
        self._count = 0

    def __call__(self) -> None:
        for name, rate in self._buffer.bandwidth(self._threads).items():
            self._seconds[name] = self._seconds.get(name, 0.0) + 1 / rate
        self._count += 1

    def fastest(self) -> tuple[str, float]:
        """The fastest reader and its bytes per second."""
        name = min(self._seconds, key=self._seconds.__getitem__)
        return name, self._count / self._seconds[name]


@dataclass(frozen=True)
class _StepTimes:
    """Seconds per decode step: the units' work, and all other work as `host`."""

    kernels: float
    moves: float
    links: float
    host: float


def run_round(work: Workload, buffer: ReadBuffer, token_bytes: int) -> Round:
    """One round. `token_bytes` are read in a decode step. PlacementError if the boards cannot hold
    prompt and tokens."""
    from lora_sdk.engine.engine import Engine

    files = model_files(work.model)
    read_files(files)
    before = copy_bandwidth(files, work.threads)
    pages = WarmPages(
        sum(path.stat().st_size for path in files) * 9 // 8
    )  # a tied head is stored twice
    loading = _Loading(pages.release)
    context = -(-(work.prompt + work.tokens + 1) // abi.TILE_POSITIONS) * abi.TILE_POSITIONS
    with closing(pages), Engine(
        work.model, boards=work.boards, overlay=work.overlay, max_sequences=1, context=context,
        progress=loading, threads=work.threads, prefix_cache=False,
    ) as engine:  # fmt: skip
        began = time.perf_counter()
        engine.check_weights()
        check = time.perf_counter() - began
        prompt = random_prompt(engine, work.prompt)
        engine.generate(prompt, SamplingParams(max_tokens=WARM_TOKENS, ignore_eos=True))
        readings = _Readings(buffer, work.threads)
        readings()
        decode, prefill = _generate(engine, prompt, work.tokens, readings)
        split = step_times(engine, prompt, work.tokens)
    reader, bandwidth = readings.fastest()
    copied = (before + copy_bandwidth(files, work.threads)) / 2
    placed = loading.bytes / (loading.ended - loading.began)
    return Round(
        prefill_tokens_per_second=work.prompt / prefill,
        decode_tokens_per_second=1 / decode,
        step_seconds=decode,
        kernel_seconds_per_step=split.kernels,
        move_seconds_per_step=split.moves,
        link_seconds_per_step=split.links,
        host_seconds_per_step=split.host,
        loading_bytes_per_second=placed,
        check_bytes_per_second=loading.bytes / check,
        copy_bytes_per_second=copied,
        read_bandwidth_bytes_per_second=bandwidth,
        share_of_read_bandwidth=token_bytes / decode / bandwidth,
        share_of_copy_bandwidth=placed / copied,
        reader=reader,
    )


def model_files(model: Path | None) -> list[Path]:
    """The weight files of a model."""
    return sorted((model or demo_model_path()).glob("*.safetensors"))


def _generate(
    engine: Engine, prompt: list[int], tokens: int, read: Callable[[], None]
) -> tuple[float, float]:
    """Seconds per decode step, and of prefill up to its token. `read` is called between some
    steps."""
    steps = _Steps(read)
    began = time.perf_counter()
    engine.generate(prompt, _decode_params(tokens), on_delta=steps)
    return sum(steps.seconds) / len(steps.seconds), steps.first - began


def step_times(engine: Engine, prompt: list[int], tokens: int) -> _StepTimes:
    """The split of a decode step's time, from a separate run under the profiler."""
    boards = _emulated(engine)
    first = _FirstToken(lambda: boards.unit_seconds)
    boards.profile(True)
    try:
        engine.generate(prompt, _decode_params(tokens), on_delta=first)
        ended, units = time.perf_counter(), boards.unit_seconds
    finally:
        boards.profile(False)
    assert first.units is not None
    host = ended - first.at - (units.total - first.units.total)
    return _StepTimes(
        kernels=(units.kernels - first.units.kernels) / tokens,
        moves=(units.moves - first.units.moves) / tokens,
        links=(units.links - first.units.links) / tokens,
        host=host / tokens,
    )


def _decode_params(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens + 1, ignore_eos=True)


def random_prompt(engine: Engine, length: int) -> list[int]:
    """The same tokens in every round."""
    if length < 1:
        raise RequestError(f"a prompt of {length} tokens; expected at least one")
    ids = np.random.default_rng(0).integers(0, engine.config.vocabulary, length)
    return [int(token) for token in ids]


def _emulated(engine: Engine) -> Emulated:
    if engine.cluster.emulated is None:
        raise RequestError("lora lab bench measures emulated boards; these are real ones")
    return engine.cluster.emulated
