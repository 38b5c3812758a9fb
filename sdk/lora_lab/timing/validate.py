"""Every published number compared with the model's."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lora_lab.timing.facts import DATA, parameters
from lora_lab.timing.quantities import evaluate

CALIBRATED, CONSISTENT, INCONSISTENT = "calibrated", "consistent", "inconsistent"
STATUSES = {
    CALIBRATED: "the model was fitted to it",
    CONSISTENT: "the model predicts it",
    INCONSISTENT: "contradicts another published number, see the reason",
    "resource": "resources, compared by the resource model",
    "given": "an input of the model",
    "outside": "not a time of a modelled design",
}
LENGTHS = "sd.length"  # compared by the loss of rate at the printed length


@dataclass(frozen=True)
class Row:
    """A published number. `model` and `error` (relative) are None if it is not modelled."""

    source: str
    metric: str
    conditions: str
    published: str
    unit: str
    status: str
    model: float | None
    error: float | None
    note: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def validate(status: str | None = None) -> list[Row]:
    """The published rows, all or those with a status, with the model's values."""
    with (DATA / "published.csv").open(encoding="utf-8", newline="") as file:
        entries = [e for e in csv.DictReader(file) if status in (None, e["status"])]
    return [_row(entry) for entry in entries]


def _row(entry: dict[str, str]) -> Row:
    value = error = None
    if entry["quantity"]:
        value = evaluate(entry["quantity"], entry["arguments"])
        if entry["quantity"] == LENGTHS:
            error = _length_error(entry)
        else:
            error = value / float(entry["value"]) - 1 if float(entry["value"]) else value
    return Row(
        source=entry["source"],
        metric=entry["metric"],
        conditions=entry["conditions"],
        published=entry["value"],
        unit=entry["unit"],
        status=entry["status"],
        model=value,
        error=error,
        note=entry["note"],
    )


def _length_error(entry: dict[str, str]) -> float:
    """The optimum is flat, so a length is judged by its loss of rate relative to the best one."""
    best = evaluate("sd.tokens_per_second", entry["arguments"])
    there = evaluate("sd.tokens_per_second", f"{entry['arguments']} length={entry['value']}")
    return best / there - 1


def errors(rows: Sequence[Row], status: str) -> list[float]:
    """Absolute relative errors of the modelled rows with this status."""
    return [abs(row.error) for row in rows if row.status == status and row.error is not None]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts by status, max and mean errors, number of fitted parameters."""
    found: dict[str, Any] = {"rows": len(rows), "fitted_parameters": len(parameters())}
    for status in STATUSES:
        found[status] = sum(row.status == status for row in rows)
    for status in (CALIBRATED, CONSISTENT, "resource"):
        values = errors(rows, status)
        if values:
            found[f"{status}_worst_error"] = max(values)
            found[f"{status}_mean_error"] = sum(values) / len(values)
    return found


def table(rows: Sequence[Row]) -> str:
    """The comparison as text: the summary, one line per row, reasons that several rows have, the
    summary again and the fitted parameters."""
    reasons = Counter(row.note for row in rows if row.note)
    often = (note for note, count in reasons.items() if count > 1)
    numbers = {note: number for number, note in enumerate(often, 1)}
    found = summary(rows)
    short = [
        f"{key:<28} {f'{value:.2%}' if isinstance(value, float) else value}"
        for key, value in sorted(found.items())
    ]
    lines = [
        *short,
        "",
        f"{'status':<13}{'published':>18}{'modelled':>10}{'error':>7}  source, metric, conditions",
    ]
    lines.extend(_line(row, numbers) for row in rows)
    lines.append("")
    lines.extend(f"[{number}] {note}" for note, number in numbers.items())
    lines.append("")
    lines.extend(f"{status:<13} {meaning}" for status, meaning in STATUSES.items())
    lines += ["", *short, ""]
    lines.append("fitted parameters")
    for entry in parameters().values():
        lines.append(f"  {entry.name:<28} {entry.value:<8g} {entry.unit}: {entry.meaning}")
        lines.append(f"  {'':<28} from {entry.source}")
    return "\n".join(lines)


def _line(row: Row, numbers: Mapping[str, int]) -> str:
    """`numbers`: of reasons that stand below the table."""
    model = f"{row.model:.4g}" if row.model is not None else "-"
    error = f"{row.error:+.1%}" if row.error is not None else ""
    what = f"{row.source}: {row.metric}" + (f", {row.conditions}" if row.conditions else "")
    note = f"  ({row.note})" if row.note else ""
    if row.note in numbers:
        note = f"  [{numbers[row.note]}]"
    value = f"{row.published} {row.unit}".strip()
    return f"{row.status:<13}{value:>18}{model:>10}{error:>7}  {what}{note}"
