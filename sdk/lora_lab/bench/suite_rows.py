"""The figures of `lora lab bench --suite`, their floors and goals, and how each is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from lora_lab.bench.long_context import held_text, random_kv, token_seconds
from lora_lab.bench.many_rows import open_many, prompt_rate, together_rate
from lora_lab.bench.measure import compare
from lora_lab.bench.peak import Arithmetic, peak
from lora_lab.bench.products import row_products
from lora_lab.bench.rounds import Workload
from lora_lab.bench.synthetic import SyntheticModels
from lora_sdk.engine.engine import Engine


@dataclass(frozen=True)
class Row:
    """A figure: a ratio within one run. `at_most`: smaller is better."""

    key: str
    what: str
    floor: float
    goal: float
    at_most: bool = False

    def reaches(self, found: float, limit: float) -> bool:
        """Whether a figure is as good as `limit`."""
        return found <= limit if self.at_most else found >= limit


@dataclass
class Setting:
    """What a measurement is given. `rates` takes tokens/s by (curve, requests or positions)."""

    models: SyntheticModels
    rounds: int
    threads: int
    rates: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def note(self, curve: str, at: int, rate: float) -> None:
        """One round's rate."""
        self.rates.setdefault(curve, {}).setdefault(at, []).append(rate)


Figures = dict[str, list[float]]
"""Key of a row -> its value in each round."""


@dataclass(frozen=True)
class Measurement:
    """Rows that are measured together, in rounds that take turns."""

    name: str
    rows: tuple[Row, ...]
    measure: Callable[[Setting], Figures]


def _of_rounds(report: dict[str, Any], name: str) -> list[float]:
    return [one[name] for one in report["rounds"]]


def _decode(setting: Setting) -> Figures:
    schemes = ("fp16", "w8a8", "w4a8")
    works = [
        Workload(setting.models.get("gpt2-345m", scheme), 1, setting.threads, 32, 64)
        for scheme in schemes
    ]
    reports = compare(works, setting.rounds)
    return {
        f"decode-{scheme}": _of_rounds(report, "share_of_read_bandwidth")
        for scheme, report in zip(schemes, reports, strict=True)
    }


def _large(setting: Setting) -> Figures:
    setting.models.need(memory=12_000_000_000, disk=5_000_000_000)
    folder = setting.models.get("llama2-7b", "w4a8")
    one, four = compare(
        [Workload(folder, boards, setting.threads, 8, 16) for boards in (1, 4)], setting.rounds
    )
    setting.models.drop("llama2-7b", "w4a8")
    share = "share_of_read_bandwidth"
    return {
        "7b-1": _of_rounds(one, share),
        "7b-4": _of_rounds(four, share),
        "7b-loading": _of_rounds(one, "share_of_copy_bandwidth"),
    }


_ARITHMETIC: dict[str, Arithmetic] = {"fp16": "fp32", "w8a8": "int8", "w4a8": "int8"}
_PROMPT_ROWS = 512


def _prefill(setting: Setting) -> Figures:
    found: Figures = {}
    with ExitStack() as stack:
        engines = {
            scheme: stack.enter_context(
                open_many(setting.models.get("gpt2-345m", scheme), 1, setting.threads, 576)
            )
            for scheme in ("fp16", "w8a8")
        }
        for turn in range(setting.rounds + 1):  # the first warms up
            for scheme, engine in engines.items():
                most = peak(_ARITHMETIC[scheme], setting.threads).products_per_second
                rate = prompt_rate(engine, _PROMPT_ROWS)
                work = row_products(engine.config)
                each = work.layers + work.head / _PROMPT_ROWS
                if turn:
                    found.setdefault(f"prefill-{scheme}", []).append(rate * each / most)
    return found


_TOGETHER, _MANY, _TOKENS = 64, 16, 24
_BATCHES = (1, 4, _MANY, 32, _TOGETHER)


def _together(setting: Setting) -> Figures:
    found: Figures = {}
    with ExitStack() as stack:
        engines = {
            scheme: stack.enter_context(
                open_many(setting.models.get("gpt2-345m", scheme), _TOGETHER, setting.threads, 64)
            )
            for scheme in _ARITHMETIC
        }
        for turn in range(setting.rounds + 1):
            for scheme, engine in engines.items():
                most = peak(_ARITHMETIC[scheme], setting.threads).products_per_second
                batches = _BATCHES if scheme == "fp16" else (_TOGETHER,)
                rates = {count: together_rate(engine, count, _TOKENS) for count in batches}
                if not turn:
                    continue
                share = rates[_TOGETHER] * row_products(engine.config).all / most
                found.setdefault(f"together-{scheme}", []).append(share)
                if scheme == "fp16":
                    found.setdefault("requests-16", []).append(rates[_MANY] / rates[1])
                    for count, rate in rates.items():
                        setting.note("requests at once, gpt2-345m FP16", count, rate)
    return found


_POSITIONS = (128, 1024, 4096, 16384)


def _long_context(setting: Setting) -> Figures:
    found: list[float] = []
    folder = setting.models.get("llama-1b-wide", "w8a8")
    with Engine(folder, boards=1, max_sequences=4, threads=setting.threads) as engine:
        held = {
            count: held_text(engine, random_kv(engine, "int8", count), count)
            for count in _POSITIONS
        }
        for turn in range(setting.rounds + 1):
            seconds = {count: token_seconds(engine, one) for count, one in held.items()}
            if turn:
                found.append(seconds[16384] / seconds[128])
                for count, spent in seconds.items():
                    setting.note("positions before a token, 2048 wide W8A8", count, 1 / spent)
    return {"context-16k": found}


def _demo_size(setting: Setting) -> Figures:
    folder = setting.models.get("demo-size")
    one, four = compare(
        [Workload(folder, boards, setting.threads, 32, 64) for boards in (1, 4)], setting.rounds
    )
    rate = "decode_tokens_per_second"
    pairs = zip(_of_rounds(four, rate), _of_rounds(one, rate), strict=True)
    return {"demo-4": [four_boards / one_board for four_boards, one_board in pairs]}


MEASUREMENTS: Sequence[Measurement] = (
    Measurement("decode", (
        Row("decode-fp16", "decode, gpt2-345m FP16, share of reading speed", 0.88, 0.95),
        Row("decode-w8a8", "decode, gpt2-345m W8A8, share of reading speed", 0.85, 0.92),
        Row("decode-w4a8", "decode, gpt2-345m W4A8, share of reading speed", 0.76, 0.85),
    ), _decode),
    Measurement("demo-size", (
        Row("demo-4", "decode, demo size, 4 boards against 1", 0.85, 1.0),
    ), _demo_size),
    Measurement("prefill", (
        Row("prefill-fp16", "prefill of 512 rows, FP16, share of FMA peak", 0.55, 0.75),
        Row("prefill-w8a8", "prefill of 512 rows, W8A8, share of INT8 peak", 0.55, 0.75),
    ), _prefill),
    Measurement("together", (
        Row("together-fp16", "64 rows decoded together, FP16, share of FMA peak", 0.5, 0.7),
        Row("together-w8a8", "64 rows decoded together, W8A8, share of INT8 peak", 0.4, 0.6),
        Row("together-w4a8", "64 rows decoded together, W4A8, share of INT8 peak", 0.4, 0.6),
        Row("requests-16", "16 requests, tokens/s of all against one, FP16", 5.0, 6.5),
    ), _together),
    Measurement("long-context", (
        Row("context-16k", "a token at 16k positions against 128, static INT8 KV", 1.4, 1.15,
            at_most=True),
    ), _long_context),
    Measurement("large", (
        Row("7b-1", "decode, LLaMA2-7B W4A8, 1 board, share of reading speed", 0.75, 0.88),
        Row("7b-4", "decode, LLaMA2-7B W4A8, 4 boards, share of reading speed", 0.75, 0.88),
        Row("7b-loading", "loading LLaMA2-7B W4A8 against memcpy", 0.5, 0.8),
    ), _large),
)  # fmt: skip
NAMES = tuple(one.name for one in MEASUREMENTS)
