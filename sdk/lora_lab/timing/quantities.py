"""The quantities in published rows, each computed from `key=value` arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from lora_host.errors import RequestError
from lora_lab.timing import analyses, resources
from lora_lab.timing.designs import ArrayDesign, StreamDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.gpus import (
    QUOTED_MODEL,
    QUOTED_NEW,
    QUOTED_PROMPT,
    gpu,
    prefill_flops,
    token_flops,
)
from lora_lab.timing.model import run_time, speculate, token_time
from lora_lab.timing.report import Report
from lora_lab.timing.stream_model import StreamModel
from lora_lab.timing.target import Target, make_target
from lora_sdk.model.shapes import shape_config
from lora_sdk.plan.segment_kv import BeamLoad, segment_bytes, standard_bytes, token_bytes

Arguments = Mapping[str, str]
DOLLARS = 8000.0  # price of a U280, GLITCHES table II


def evaluate(quantity: str, arguments: str) -> float:
    """The model's value of a quantity. An argument `over.KEY=VALUE` divides it by the same quantity
    with KEY changed. RequestError: unknown quantity."""
    pairs = dict(entry.split("=", 1) for entry in arguments.split())
    plain = {key: value for key, value in pairs.items() if not key.startswith("over.")}
    over = {key[5:]: value for key, value in pairs.items() if key.startswith("over.")}
    value = _value(quantity, plain)
    return value / _value(quantity, {**plain, **over}) if over else value


def _value(quantity: str, arguments: Arguments) -> float:
    kind, _, name = quantity.partition(".")
    if kind not in KINDS:
        raise RequestError(f"quantity {quantity!r} is not known; kinds: {', '.join(KINDS)}")
    return KINDS[kind](name, arguments)


@cache
def _target(design: str, board: str | None, model: str, boards: int) -> Target:
    return make_target(design, board, shape_config(model), boards)


def _of(arguments: Arguments) -> Target:
    return _target(arguments["design"], arguments.get("board"), arguments["model"],
                   int(arguments.get("boards", "1")))  # fmt: skip


@cache
def _run_report(arguments: tuple[tuple[str, str], ...]) -> Report:
    pairs = dict(arguments)
    return run_time(_of(pairs), pairs["model"], int(pairs["in"]), int(pairs["out"]))


def _run(name: str, arguments: Arguments) -> float:
    return float(_run_report(tuple(sorted(arguments.items()))).as_dict()[name])


def _token(name: str, arguments: Arguments) -> float:
    report = token_time(_of(arguments), arguments["model"], int(arguments["context"]))
    if name.endswith("%"):
        return 100.0 * report.utilisation[name[:-1]]
    return float(report.as_dict()[name])


def _sd(name: str, arguments: Arguments) -> float:
    target = _of(arguments)
    length = int(arguments["length"]) if "length" in arguments else None
    if name in ("mean_speedup", "mean_against"):
        contexts = [int(text) for text in arguments["contexts"].split(",")]
        gains = [_gain(target, context, length) for context in contexts]
        return sum(gains) / len(gains)
    found = speculate(target, int(arguments["context"]), length)
    return {
        "tokens_per_second": 1 / found.per_token,
        "speedup": found.plain_s / found.per_token,
        "length": float(found.length),
    }[name]


def _gain(target: Target, context: int, length: int | None) -> float:
    """Speed-up of the best round over plain decoding, or over a round of `length` rows."""
    best = speculate(target, context)
    against = speculate(target, context, length or 1)
    return against.per_token / best.per_token


def _stream(name: str, arguments: Arguments) -> float:
    design = load_design(arguments["design"])
    assert isinstance(design, StreamDesign)  # published rows
    board = board_facts(design.boards[0])
    model = StreamModel(design, board, shape_config(arguments["model"]))
    if "length" in arguments:
        time = model.prefill(int(arguments["length"]))
    else:
        time = model.decode(int(arguments["context"]))
    moved = time.bytes["weights"] + time.bytes["kv"]
    return {
        "gop": 2e-9 * time.macs,
        "gb": 1e-9 * moved,
        "intensity": 2 * time.macs / moved,
        "ms": 1e3 * time.seconds,
        "per_joule": 1 / (time.seconds * board.power_watts),
        "per_dollar": 1 / (time.seconds * DOLLARS),
    }[name.partition("_")[2]]


def _gpu(name: str, arguments: Arguments) -> float:
    """GLITCHES' tables I and II, at the lengths and for the model that they are printed for."""
    one, config = gpu(arguments["gpu"]), shape_config(QUOTED_MODEL)
    if name == "prefill_over":
        board = _value("stream.prefill_ms", {**arguments, "model": QUOTED_MODEL, "length": "1536"})
        return board / one.prefill.ms
    if name == "stages":
        return one.prefill.ms / one.decode.ms
    if name == "cost_gain":
        other = arguments["over_card"]
        against = int(arguments["cards"]) * (DOLLARS if other == "u280" else gpu(other).dollars)
        price = one.dollars + int(arguments["boards"]) * DOLLARS
        return float(arguments["throughput"]) * against / price
    stage, _, figure = name.partition("_")
    quoted = one.prefill if stage == "prefill" else one.decode
    context = QUOTED_PROMPT + QUOTED_NEW // 2
    flops = {
        "prefill": prefill_flops(config, QUOTED_PROMPT),
        "decode": token_flops(config, context),
    }[stage]
    rate = 1e3 / quoted.ms
    return {
        "gop": flops / 1e9,
        "memory%": 100 * quoted.gigabytes * 1e9 * rate / one.bytes_per_second,
        "compute%": 100 * flops * rate / one.peak_flops,
        "per_joule": rate / quoted.watts,
        "per_dollar": rate / one.dollars,
    }[figure]


def _array(name: str, arguments: Arguments) -> float:
    """Bandwidth in GB/s that the multipliers need, including fill (V.C): a column of weights per
    cycle in prefill, one weight per multiplier in decode."""
    design = load_design(arguments["design"])
    assert isinstance(design, ArrayDesign)  # published rows
    share = design.fill_cycles / design.tile
    rate = design.weight_bytes * design.clock_hz / 1e9
    if name == "prefill_gb_s":
        return design.array[1] * rate / (1 + share / 2)
    return design.array[0] * design.array[1] * rate / (1 + share)


def _summation(name: str, arguments: Arguments) -> float:
    return _percent(analyses.summation(), name)


def _reordering(name: str, arguments: Arguments) -> float:
    return _percent(analyses.reordering(), name)


def _percent(values: Mapping[str, float], name: str) -> float:
    return 100.0 * values[name[:-1]] if name.endswith("%") else values[name]


def _segment_kv(name: str, arguments: Arguments) -> float:
    """KV cache of a beam search in FP16 (the segment KV cache paper)."""
    number = {key: int(text) for key, text in arguments.items()}
    token = token_bytes(number["layers"], number["heads"], number["head_dim"])
    load = BeamLoad(*(number[key] for key in ("batch", "beams", "prompt", "response")))
    standard, segment = standard_bytes(load, token), segment_bytes(load, token)
    return {
        "standard_gb": standard / 1e9,
        "segment_gb": segment / 1e9,
        "saved_gb": (standard - segment) / 1e9,
        "share%": 100.0 * segment / standard,
    }[name]


def _resource(name: str, arguments: Arguments) -> float:
    design = load_design(arguments["design"])
    assert isinstance(design, ArrayDesign)  # published rows
    macs, kind = design.array[0] * design.array[1], design.precision
    taken = resources.resources(design, board_facts(design.boards[0]))
    return {
        "dsp": taken.dsp,
        "bram": taken.bram,
        "uram": taken.uram,
        "lut": taken.lut / 1e3,
        "ff": taken.ff / 1e3,
        "mpu_dsp": taken.dsp - resources.vfu_dsp(design.lanes),
        "vfu_dsp": resources.vfu_dsp(design.lanes),
        "mpu_bram": resources.MAC_BRAM[kind] * macs,
        "mpu_lut_k": resources.MAC_LUT[kind] * macs / 1e3,
        "vfu_lut_k": resources.LANE_LUT * design.lanes / 1e3,
    }[name]


KINDS: dict[str, Callable[[str, Arguments], float]] = {
    "run": _run,
    "token": _token,
    "sd": _sd,
    "stream": _stream,
    "gpu": _gpu,
    "array": _array,
    "resource": _resource,
    "summation": _summation,
    "reordering": _reordering,
    "segment_kv": _segment_kv,
}
