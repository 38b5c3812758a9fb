"""Splits of a cluster as text and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host.naming import counted
from lora_lab.timing.plots import save

GOALS = {
    "latency": "lowest latency of a lone token",
    "throughput": "highest throughput",
    "cost": "lowest cost of a token",
}


def cluster_text(found: dict[str, Any]) -> str:
    """A table of the splits that no other one outdoes, the best ones, and notes."""
    load = found["requests"]
    lines = [
        f"modelled: {found['design']}, {found['hosts']} hosts of {found['boards_per_host']} x "
        f"{found['board']}, {found['model']}, context {found['context']}, "
        + ("as many requests as fit" if load is None else f"{load} requests at once"),
        f"{'boards a replica':>16}{'stages':>7}{'hosts':>7}{'replicas':>10}{'hops':>6}"
        f"{'link kB':>9}"
        f"{'lone ms':>9}{'rows':>6}{'loaded ms':>11}{'tokens/s':>10}{'board-ms':>10}{'J':>9}"
        f"{'$/Mtoken':>10}",
    ]
    shown = [one for one in found["splits"] if not one["outdone"]]
    for one in shown:
        price = one["dollars_per_million_tokens"]
        lines.append(
            f"{one['boards']:>16}{one['stages']:>7}{one['hosts']:>7}{one['replicas']:>10}{one['hops']:>6}"
            f"{one['link_bytes'] / 1e3:>9.0f}{one['lone_ms']:>9.3f}{one['rows']:>6}"
            f"{one['loaded_ms']:>11.3f}{one['tokens_per_second']:>10.1f}"
            f"{one['board_ms_per_token']:>10.3f}{one['joules_per_token']:>9.3f}"
            + ("         -" if price is None else f"{price:>10.3f}")
        )
    for goal, title in GOALS.items():
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
        splits = found["splits"]
        for stages in sorted({one["stages"] for one in splits}):
            some = [one for one in splits if one["stages"] == stages]
            xs = [one["tokens_per_second"] for one in some]
            ys = [one["lone_ms"] for one in some]
            label = f"{stages} stages" if stages > 1 else "no stages"
            axes.plot(xs, ys, marker="o", linestyle=":", label=label)
            for one, x, y in zip(some, xs, ys, strict=True):
                if not one["outdone"]:
                    name = f"{one['replicas']} x {one['boards']}"
                    axes.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5),
                                  fontsize=8)  # fmt: skip
        axes.legend()
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("tokens per second of all replicas, at the load")
        axes.set_ylabel("ms of a lone token")
        axes.set_title(
            f"{found['model']}, {found['hosts']} hosts of {found['boards_per_host']} x "
            f"{found['board']}: replicas x boards"
        )

    save(path, drawer)
