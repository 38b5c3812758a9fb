"""Splits of a cluster as text and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host.naming import counted
from lora_lab.timing.plots import HOLLOW, NO_HARDWARE, footnotes, plain_ticks, save

GOALS = {
    "latency": "lowest latency of a lone token",
    "throughput": "highest throughput",
    "cost": "lowest cost of a token",
}


_COLUMNS = {
    "boards": ("", 6), "stages": ("", 7), "hosts": ("", 6), "copies": ("", 7), "hops": ("", 5),
    "kB": ("link", 6), "ms": ("lone", 8), "rows": ("", 5), "ms ": ("loaded", 8),
    "tokens/s": ("", 9), "token": ("J a", 6), "Mtok": ("$ a", 7),
}  # fmt: skip
_HEAD = [
    "".join(f"{above:>{width}}" for above, width in _COLUMNS.values()),
    "".join(f"{name.strip():>{width}}" for name, (_, width) in _COLUMNS.items()),
]
"""Boards, stages and hosts of a replica; how many replicas; the rest is of a token. Board-ms are in
the JSON alone."""


def cluster_text(found: dict[str, Any]) -> str:
    """A table of the splits that no other one outdoes, the best ones, and notes."""
    load = found["requests"]
    lines = [
        f"modelled: {found['design']}, {found['hosts']} hosts of {found['boards_per_host']} x "
        f"{found['board']}, {found['model']}, context {found['context']}, "
        + ("as many requests as fit" if load is None else f"{load} requests at once"),
        *_HEAD,
    ]
    shown = [one for one in found["splits"] if not one["outdone"]]
    for one in shown:
        price = one["dollars_per_million_tokens"]
        lines.append(
            f"{one['boards']:>6}{one['stages']:>7}{one['hosts']:>6}{one['replicas']:>7}"
            f"{one['hops']:>5}{one['link_bytes'] / 1e3:>6.0f}{one['lone_ms']:>8.2f}{one['rows']:>5}"
            f"{one['loaded_ms']:>8.2f}{one['tokens_per_second']:>9.1f}"
            f"{one['joules_per_token']:>6.2f}"
            + (f"{'-':>7}" if price is None else f"{price:>7.3f}")
        )
    priced = found["prices"]["board_dollars"] is not None
    for goal, title in GOALS.items():
        if goal == "cost" and not priced:
            lines.append(f"  cost: no price of {found['board']} (--prices FILE)")
            continue
        one = found["best"][goal]
        stages = f" in {one['stages']} stages" if one["stages"] > 1 else ""
        lines.append(f"  {title}: {counted(one['boards'], 'board')} a replica{stages}")
    if len(shown) < len(found["splits"]):
        others = counted(len(found["splits"]) - len(shown), "split")
        lines.append(f"  {others} more (--json), each outdone in all three by one above")
    lines += [f"  not possible: {why}" for why in found["refused"]]
    lines += [f"  note: {note}" for note in found["notes"]]
    return "\n".join(lines)


def draw_cluster(path: Path, found: dict[str, Any]) -> None:
    """Latency of a lone token over throughput, a point for each split, a line for each number of
    stages; those have names that no other one outdoes. RequestError as `plots.save`."""

    def drawer(axes: Any) -> None:
        splits, fits = (
            found["splits"],
            not any("not fit" in note or note.startswith(NO_HARDWARE) for note in found["notes"]),
        )
        for stages in sorted({one["stages"] for one in splits}):
            some = [one for one in splits if one["stages"] == stages]
            xs = [one["tokens_per_second"] for one in some]
            ys = [one["lone_ms"] for one in some]
            label = f"{stages} stages" if stages > 1 else "no stages"
            face = "auto" if fits else "white"
            axes.plot(xs, ys, marker="o", linestyle=":", label=label, markerfacecolor=face)
            for one, x, y in zip(some, xs, ys, strict=True):
                if not one["outdone"]:
                    name = f"{one['replicas']} x {one['boards']}"
                    axes.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5),
                                  fontsize=8)  # fmt: skip
        axes.legend(fontsize=8)
        axes.margins(x=0.1, y=0.12)
        footnotes(axes, [*([] if fits else [HOLLOW]), *found["notes"]])
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.set_xlabel("tokens per second of all replicas, at the load")
        axes.set_ylabel("ms of a lone token")
        axes.set_title(
            f"{found['model']}, {found['hosts']} hosts of {found['boards_per_host']} x "
            f"{found['board']}: replicas x boards"
        )

    save(path, drawer)
