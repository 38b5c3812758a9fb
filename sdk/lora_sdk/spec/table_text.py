"""Text layout of a file of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_LONG = ("curves", "trees", "tables")


def table_text(value: dict[str, Any]) -> str:
    """JSON with one line per tree, curve, table and choice, for reading and for diffs."""
    measurements = []
    for entry in value["measurements"]:
        fields = [f"{_compact(k)}: {_compact(v)}" for k, v in entry.items() if k not in _LONG]
        fields.append(f'"curves": {_lines(map(_compact, entry["curves"]))}')
        trees = [f"{_compact(size)}: {_compact(tree)}" for size, tree in entry["trees"].items()]
        fields.append(f'"trees": {_lines(trees, "{}")}')
        fields.append(f'"tables": {_lines(_table(table) for table in entry["tables"])}')
        measurements.append(_lines(fields, "{}"))
    model = _compact(value["model"])
    return (
        f'{{\n"version": {value["version"]},\n"model": {model},\n'
        f'"measurements": {_lines(measurements)}\n}}'
    )


def _table(table: dict[str, Any]) -> str:
    fields = [f"{_compact(k)}: {_compact(v)}" for k, v in table.items() if k != "choices"]
    return f'{{{", ".join(fields)}, "choices": {_lines(map(_compact, table["choices"]))}}}'


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(items: Iterable[str], brackets: str = "[]") -> str:
    inner = ",\n".join(items)
    return f"{brackets[0]}\n{inner}\n{brackets[1]}"
