"""What `lora top` draws: one state of a server, and rates since the last one."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lora_sdk.plan.banks import MIB

State = dict[str, Any]


def printable(text: str) -> str:
    """A server's text without control characters: terminals obey them."""
    return "".join(c if c.isprintable() else "?" for c in text)


def view(state: State, last: State | None) -> RenderableType:
    """`state` and `last` are answers of /status; rates need two."""
    parts: list[RenderableType] = [_title(state), _counts(state, last)]
    if state["boards"]:
        parts.append(_boards(state["boards"]))
    return Group(*parts)


def _title(state: State) -> Text:
    style = "bold green" if state["status"] == "ready" else "bold red"
    title = Text.assemble(
        (printable(state["model"]), "bold"), "  ", (printable(state["status"]), style)
    )
    title.append(f"  version {printable(state['version'])}, up {state['uptime']:.0f} s", "dim")
    if state["status"] == "loading" and state["total_bytes"]:
        title.append(f", {state['loaded_bytes'] / state['total_bytes']:.0%} loaded", "dim")
    if state["adapters"]:
        title.append(f", adapters {printable(', '.join(state['adapters']))}", "dim")
    return title


def _counts(state: State, last: State | None) -> Table:
    table = Table.grid(padding=(0, 3))
    requests, kv, drafts = state["requests"], state["kv"], state.get("speculation")
    cells = [
        ("tokens/s", _rate(state, last, "new_tokens")),
        ("steps/s", _rate(state, last, "steps")),
        ("running", f"{requests['running']}/{requests['capacity']}"),
        ("waiting", f"{requests['waiting']}/{requests['max_waiting']}"),
        ("KV pages", f"{kv['pages'] - kv['free']}/{kv['pages']}" if kv else "-"),
        ("redone", str(state.get("redone_steps", "-"))),
        ("accepted", f"{drafts['accepted'] / drafts['drafted']:.0%}"
         if drafts and drafts["drafted"] else "-"),
        ("tokens", str(state["new_tokens"])),
    ]  # fmt: skip
    table.add_row(*(Text(name, "dim") for name, _ in cells))
    table.add_row(*(Text(value, "bold") for _, value in cells))
    return table


def _rate(state: State, last: State | None, key: str) -> str:
    if last is None or key not in state or key not in last or state["uptime"] <= last["uptime"]:
        return "-"
    return f"{(state[key] - last[key]) / (state['uptime'] - last['uptime']):.1f}"


def _boards(boards: list[State]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("rank", "address", "board", "serial", "reserved", "", "links"):
        table.add_column(name)
    for board in boards:
        used = sum(bank["used"] for bank in board["banks"])
        usable = sum(bank["usable"] for bank in board["banks"])
        bar = ProgressBar(total=max(usable, 1), completed=used, width=12)
        table.add_row(
            str(board["rank"]), printable(board["address"]), printable(board["name"]),
            str(board["serial"]),
            f"{used / MIB:.1f} of {usable / MIB:.0f} MiB", bar, _links(board["links"]),
        )  # fmt: skip
    return table


def _links(links: list[State]) -> Text:
    text = Text("none" if not links else "")
    for link in links:
        style = "green" if link["up"] else "bold red"
        text.append(f"{link['port']}:{'up' if link['up'] else 'down'} ", style)
        if link["errors"]:
            text.append(f"{link['errors']} errors ", "red")
    return text
