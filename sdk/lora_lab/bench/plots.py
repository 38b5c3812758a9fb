"""Measured tokens/s against requests at once and against context, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_lab.timing.plots import save


def plot_curves(report: dict[str, Any], path: Path) -> None:
    """Draw the curves of a suite's report. RequestError: it has none, another suffix than .png and
    .svg, no matplotlib, a file that cannot be written."""
    curves = report["curves"]
    if not curves:
        raise RequestError("no curve was measured; --plot needs together or long-context")

    def draw(axes: Any) -> None:
        for name, points in curves.items():
            axes.plot([int(at) for at in points], list(points.values()), marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("requests at once, or positions before the token")
        axes.set_ylabel("tokens/s")
        axes.legend(fontsize=8)
        axes.grid(visible=True, which="both", alpha=0.3)

    save(path, draw, "measured")
