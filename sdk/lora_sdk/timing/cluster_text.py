"""Splits of a cluster as text and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host.naming import counted
from lora_sdk.timing.plots import save

GOALS = {
    "latency": "lowest latency of a lone token",
    "throughput": "highest throughput",
    "cost": "lowest cost of a token",
}


def cluster_text(found: dict[str, Any]) -> str:
    """A table of splits, the best ones, and notes."""
    load = found["requests"]
    lines = [
        f"modelled: {found['design']}, {found['hosts']} hosts of {found['boards_per_host']} x "
        f"{found['board']}, {found['model']}, context {found['context']}, "
        + ("as many requests as fit" if load is None else f"{load} requests at once"),
        f"{'boards a replica':>16}{'hosts':>7}{'replicas':>10}{'hops':>6}{'link kB':>9}"
        f"{'lone ms':>9}{'rows':>6}{'loaded ms':>11}{'tokens/s':>10}{'board-ms':>10}{'J':>9}"
        f"{'$/Mtoken':>10}",
    ]
    for one in found["splits"]:
        price = one["dollars_per_million_tokens"]
        lines.append(
            f"{one['boards']:>16}{one['hosts']:>7}{one['replicas']:>10}{one['hops']:>6}"
            f"{one['link_bytes'] / 1e3:>9.0f}{one['lone_ms']:>9.3f}{one['rows']:>6}"
            f"{one['loaded_ms']:>11.3f}{one['tokens_per_second']:>10.1f}"
            f"{one['board_ms_per_token']:>10.3f}{one['joules_per_token']:>9.3f}"
            + ("         -" if price is None else f"{price:>10.3f}")
        )
    for goal, title in GOALS.items():
        lines.append(f"  {title}: {counted(found['best'][goal], 'board')} a replica")
    lines += [f"  not possible: {why}" for why in found["refused"]]
    lines += [f"  note: {note}" for note in found["notes"]]
    return "\n".join(lines)


def draw_cluster(path: Path, found: dict[str, Any]) -> None:
    """Latency of a lone token over throughput, a point for each split. RequestError as
    `plots.save`."""

    def drawer(axes: Any) -> None:
        splits = found["splits"]
        xs = [one["tokens_per_second"] for one in splits]
        ys = [one["lone_ms"] for one in splits]
        axes.plot(xs, ys, marker="o", linestyle=":")
        for one, x, y in zip(splits, xs, ys, strict=True):
            label = f"{one['replicas']} x {one['boards']}"
            axes.annotate(label, (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("tokens per second of all replicas, at the load")
        axes.set_ylabel("ms of a lone token")
        axes.set_title(
            f"{found['model']}, {found['hosts']} hosts of {found['boards_per_host']} x "
            f"{found['board']}: replicas x boards"
        )

    save(path, drawer)
