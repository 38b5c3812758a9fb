"""The boards of this computer as a table, for `lora list --watch`."""

from __future__ import annotations

from collections.abc import Sequence

from lora_host.lab.inventory import BoardView

UNKNOWN = "-"
_HEAD = ("board", "kind", "temperature", "power", "links", "link errors", "held by")
_NOTE = f"{UNKNOWN}: the board's driver does not give it, or no overlay of ours is loaded"


def table(views: Sequence[BoardView]) -> list[str]:
    """A line per board under a head, then problems. Counts of errors are since the overlay was
    loaded."""
    rows = [_HEAD, *(_row(view) for view in views)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if any(UNKNOWN in row for row in rows):
        lines.append(_NOTE)
    return lines + [f"{view.uri}: {view.problem}" for view in views if view.problem]


def _row(view: BoardView) -> tuple[str, ...]:
    up = sum(port.healthy for port in view.links)
    errors = [f"{p.port}: {name} {n}" for p in view.links for name, n in p.errors.items() if n]
    return (
        view.uri,
        view.board,
        _largest(view, "C"),
        _largest(view, "W"),
        f"{up} of {len(view.links)} up" if view.links else UNKNOWN,
        (", ".join(errors) or "none") if view.links else UNKNOWN,
        f"{view.holder} ({view.holder_name})" if view.holder else "nobody",
    )


def _largest(view: BoardView, unit: str) -> str:
    """The largest reading in `unit`: the hottest place, the power of the whole card."""
    values = [text.split() for text in view.sensors.values()]
    found = [float(value[0]) for value in values if len(value) == 2 and value[1] == unit]
    return f"{max(found):g} {unit}" if found else UNKNOWN
