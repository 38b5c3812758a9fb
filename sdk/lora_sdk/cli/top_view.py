"""What `lora top` draws: one state of a server, and rates since the last one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lora_host.naming import counted
from lora_sdk.plan.banks import MIB

State = dict[str, Any]
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def printable(text: str) -> str:
    """A server's text without control characters: terminals obey them."""
    return "".join(c if c.isprintable() else "?" for c in text)


def view(state: State, last: State | None) -> RenderableType:
    """`state` and `last` are answers of /status; rates need two."""
    parts: list[RenderableType] = [_title(state), _rates(state, last), _counts(state)]
    if state["boards"]:
        parts += [_all_links(state["boards"]), _boards(state["boards"])]
    return Group(*parts)


def _title(state: State) -> Text:
    style = "bold green" if state["status"] == "ready" else "bold red"
    title = Text(printable(state["model"]), "bold")
    title.append(_machine(state["boards"]), "not bold")
    title.append(f"  {printable(state['status'])}", style)
    told = f"  version {printable(state['version'])}, up {duration(state['uptime'])}"
    title.append(told, "not bold dim")
    if state["status"] == "loading" and state["total_bytes"]:
        title.append(f", {state['loaded_bytes'] / state['total_bytes']:.0%} loaded", "dim")
    if state["adapters"]:
        title.append(f", adapters {printable(', '.join(state['adapters']))}", "dim")
    return title


def _machine(boards: list[State]) -> str:
    """What the model runs on, as " on 4 emulated boards"."""
    types = Counter(board["type"] for board in boards)
    told = [counted(count, f"{name} board") for name, count in types.items()]
    return f" on {', '.join(told)}" if told else ""


def duration(seconds: float) -> str:
    """In at most two units: 24 s, 3 min 5 s, 2 h 10 min, 4 d."""
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        parts.append(f"{count} {unit}" if count else "")
    first = next((index for index, part in enumerate(parts) if part), None)
    return "0 s" if first is None else " ".join(filter(None, parts[first : first + 2]))


def _rates(state: State, last: State | None) -> Table:
    latency = state.get("latency", {})
    return _cells(
        ("tokens/s", _rate(state, last, "new_tokens")),
        ("steps/s", _rate(state, last, "steps")),
        ("first token, p50 / p99", _times(latency.get("first_token"))),
        ("between tokens", _times(latency.get("between_tokens"))),
    )


def _counts(state: State) -> Table:
    requests, kv, drafts = state["requests"], state["kv"], state.get("speculation")
    return _cells(
        ("running", f"{requests['running']}/{requests['capacity']}"),
        ("waiting", f"{requests['waiting']}/{requests['max_waiting']}"),
        ("KV pages held", f"{kv['held']}/{kv['pages']}" if kv else "-"),
        ("cached", str(kv["cached"]) if kv else "-"),
        ("redone", str(state.get("redone_steps", "-"))),
        ("accepted", f"{drafts['accepted'] / drafts['drafted']:.0%}"
         if drafts and drafts["drafted"] else "-"),
        ("tokens", str(state["new_tokens"])),
    )  # fmt: skip


def _cells(*cells: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_row(*(Text(name, "dim") for name, _ in cells))
    table.add_row(*(Text(value, "bold") for _, value in cells))
    return table


def _times(times: State | None) -> str:
    """p50 and p99 of the last minute, in ms."""
    return "-" if times is None else f"{1e3 * times['p50']:.3g} / {1e3 * times['p99']:.3g} ms"


def _rate(state: State, last: State | None, key: str) -> str:
    if last is None or state["status"] != "ready" or state["uptime"] <= last["uptime"]:
        return "-"
    if key not in state or key not in last:
        return "-"
    return f"{(state[key] - last[key]) / (state['uptime'] - last['uptime']):.1f}"


def _all_links(boards: list[State]) -> Text:
    """Both ports of a link must be up."""
    links: dict[frozenset[tuple[int, int]], bool] = {}
    for board in boards:
        for link in board["links"]:
            peer = link["peer"]
            ends = frozenset({(board["rank"], link["port"]), (peer["rank"], peer["port"])})
            links[ends] = links.get(ends, True) and link["up"]
    down = list(links.values()).count(False)
    if not links:
        return Text("no links", "dim")
    if down:
        return Text(f"{down} of {counted(len(links), 'link')} down", "bold red")
    told = "the link is up" if len(links) == 1 else f"all {len(links)} links up"
    return Text(told, "green")


def _boards(boards: list[State]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("rank", "address", "board", "serial", "reserved", "", "port-peer.port"):
        table.add_column(name)
    for board in boards:
        used = sum(bank["used"] for bank in board["banks"])
        usable = sum(bank["usable"] for bank in board["banks"])
        bar = ProgressBar(total=max(usable, 1), completed=used, width=8)
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
        peer = link["peer"]
        up = "up" if link["up"] else "down"
        text.append(f"{link['port']}-{peer['rank']}.{peer['port']}\N{NO-BREAK SPACE}{up} ", style)
        if link["errors"]:
            text.append(f"{link['errors']} errors ", "red")
    return text
