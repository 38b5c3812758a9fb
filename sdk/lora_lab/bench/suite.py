"""`lora lab bench --suite`: runs the measurements and reports them as JSON or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from lora_host.errors import RequestError
from lora_host.held_folder import HeldFolder, remove_stale
from lora_host.naming import counted
from lora_lab.bench.machine import describe_machine
from lora_lab.bench.memory import bound_threads
from lora_lab.bench.suite_rows import MEASUREMENTS, NAMES, Measurement, Row, Setting
from lora_lab.bench.synthetic import LacksRoom, SyntheticModels

Progress = Callable[[int, int], None]
_FOLDER = "lora-bench-"  # prefix of the models' folder; those of killed runs go


def run_suite(
    only: Sequence[str] = (),
    *,
    rounds: int = 7,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The report of the measurements named in `only`, all without names. `progress(done, total)`
    counts measurements. One that lacks memory or disk is reported with the reason.

    RequestError: an unknown name, or more threads than cores."""
    unknown = [name for name in only if name not in NAMES]
    if unknown:
        raise RequestError(
            f"measurement {unknown[0]!r} is not known; expected one of {', '.join(NAMES)}"
        )
    chosen = [one for one in MEASUREMENTS if not only or one.name in only]
    rows: list[dict[str, Any]] = []
    remove_stale(_FOLDER)
    with ExitStack() as stack:
        count = stack.enter_context(bound_threads(threads))
        folder = HeldFolder(_FOLDER)
        stack.callback(folder.remove)
        setting = Setting(SyntheticModels(folder.path), rounds, count)
        for index, measurement in enumerate(chosen):
            if progress is not None:
                progress(index, len(chosen))
            rows += _rows_of(measurement, setting)
        machine = describe_machine()
    return {
        "label": "measured", "machine": machine, "threads": count, "rounds": rounds, "rows": rows,
        "curves": {
            name: {str(at): median(rates) for at, rates in points.items()}
            for name, points in setting.rates.items()
        },
    }  # fmt: skip


def _rows_of(measurement: Measurement, setting: Setting) -> list[dict[str, Any]]:
    try:
        found = measurement.measure(setting)
    except LacksRoom as lacking:
        return [{**_facts(row), "value": None, "why": str(lacking)} for row in measurement.rows]
    return [{**_facts(row), **_judged(row, found[row.key])} for row in measurement.rows]


def _facts(row: Row) -> dict[str, Any]:
    return {
        "key": row.key, "what": row.what, "floor": row.floor, "goal": row.goal,
        "at_most": row.at_most,
    }  # fmt: skip


def _judged(row: Row, values: Sequence[float]) -> dict[str, Any]:
    value = median(values)
    return {
        "value": value,
        "spread": [min(values), max(values)],
        "floor_holds": row.reaches(value, row.floor),
        "goal_reached": row.reaches(value, row.goal),
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a table, the machine before it."""
    machine = report["machine"]
    sets = ", ".join(machine["instruction_sets"]) or "none of those that kernels use"
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {report['threads']} threads used, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {sets}; {machine['kernel']}, "
        f"Python {machine['python']}",
        "",
        f"Measured: median of {counted(report['rounds'], 'round')} (minimum .. maximum), ratios "
        "within a run. Floor: what make bench holds a figure to; goal: what is aimed at.",
        "",
        "| what | found | floor | goal | |",
        "|---|---|---:|---:|---|",
    ]
    lines += [_line(row) for row in report["rows"]]
    for name, points in report["curves"].items():
        rates = ", ".join(f"{at}: {rate:.1f}" for at, rate in points.items())
        lines += ["", f"Tokens/s by {name}: {rates}."]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    bound = "at most " if row["at_most"] else ""
    limits = f"{bound}{row['floor']:g} | {bound}{row['goal']:g}"
    if row["value"] is None:
        return f"| {row['what']} | not measured: {row['why']} | {limits} | |"
    low, high = row["spread"]
    if row["goal_reached"]:
        verdict = "goal reached"
    else:
        verdict = "floor holds" if row["floor_holds"] else "below the floor"
        if row["at_most"] and not row["floor_holds"]:
            verdict = "above the limit"
    return (
        f"| {row['what']} | {row['value']:.2f} ({low:.2f} .. {high:.2f}) | {limits} | {verdict} |"
    )
