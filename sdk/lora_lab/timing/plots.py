"""Plots of modelled times: breakdown, scaling, roofline, speculation. matplotlib is optional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_lab.timing.designs import is_own
from lora_lab.timing.model import check_positions, speculate, token_time
from lora_lab.timing.target import Target, make_target
from lora_sdk.model.shapes import find_config
from lora_sdk.plan.partition import BOARD_COUNTS, check_board_count

FORMATS = (".png", ".svg")
LENGTHS = range(1, 33)
KINDS = ("breakdown", "scaling", "roofline", "speculation")


def draw(
    kind: str, path: Path, designs: Sequence[str], model: str, boards: int, context: int
) -> None:
    """Draw a plot of `kind` to `path`, PNG or SVG by its suffix.

    RequestError: unknown kind or suffix, no matplotlib, a file that cannot be written, or an error
    of a design."""
    if kind not in KINDS:
        raise RequestError(f"plot {kind!r} is not known; expected one of {', '.join(KINDS)}")
    save(path, lambda axes: DRAWERS[kind](axes, designs, model, boards, context))


def save(path: Path, drawer: Callable[[Any], None], label: str = "modelled") -> None:
    """Writes what `drawer` draws on its axes to `path`, PNG or SVG by its suffix, and below it how
    the figures were found.

    RequestError: another suffix, no matplotlib, a file that cannot be written."""
    if path.suffix not in FORMATS:
        raise RequestError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}")
    plot = _pyplot()
    figure, axes = plot.subplots(figsize=(7.0, 4.2), layout="constrained")
    try:
        drawer(axes)
        figure.text(0.995, 0.995, label, ha="right", va="top", fontsize=7, color="gray")
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise RequestError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        plot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RequestError("plots need matplotlib: pip install 'lora-fpga[plot]'") from None
    matplotlib.use("Agg")  # files only, no display
    matplotlib.rcParams["svg.hashsalt"] = "lora"  # equal plots give equal files
    from matplotlib import pyplot

    return pyplot


def _target(design: str, model: str, boards: int, context: int) -> Target:
    check_board_count(boards)
    config = find_config(model)
    check_positions(config, context)
    return make_target(design, None, config, boards)


def _breakdown(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Breakdown of a token's time: one stacked bar per design, or a bar per part of one design."""
    reports = [
        token_time(_target(name, model, boards, context), model, context) for name in designs
    ]
    parts = [part for part in dict.fromkeys(p for r in reports for p in r.breakdown_ms)
             if any(r.breakdown_ms.get(part, 0.0) > 1e-6 for r in reports)]  # fmt: skip
    axes.set_title(f"{model}, context {context}, {boards} board{'s' if boards > 1 else ''}")
    if len(reports) == 1:
        _parts(axes, {part: reports[0].breakdown_ms[part] for part in parts}, designs[0])
        return
    bottom = [0.0] * len(reports)
    titles = [f"{name}\n(no hardware)" if is_own(name) else name for name in designs]
    for part in parts:
        heights = [report.breakdown_ms.get(part, 0.0) for report in reports]
        axes.bar(titles, heights, bottom=bottom, label=part.replace("_", " "))
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("ms per token")
    axes.legend(fontsize=8)


def _parts(axes: Any, parts: dict[str, float], design: str) -> None:
    """A horizontal bar per part, the longest on top, with its time and its share."""
    whole = sum(parts.values())
    shown = sorted(parts.items(), key=lambda part: part[1])
    bars = axes.barh([name.replace("_", " ") for name, _ in shown], [ms for _, ms in shown])
    labels = [f"{ms:.3g} ms, {ms / whole:.1%}" for _, ms in shown]
    axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.margins(x=0.2)
    axes.set_xlabel(f"ms per token of {design}, {whole:.3g} in all")


def _scaling(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Speed-up over one board."""
    check_board_count(boards)
    counts = [count for count in BOARD_COUNTS if count <= boards]
    if len(counts) < 2:
        more = ", ".join(map(str, BOARD_COUNTS[1:-1]))
        raise RequestError(
            f"scaling up to 1 board: one point is no curve; expected {more} or {BOARD_COUNTS[-1]}"
        )
    for name in designs:
        times = [
            token_time(_target(name, model, count, context), model, context).latency_ms
            for count in counts
        ]
        axes.plot(counts, [times[0] / time for time in times], marker="o", label=name)
    axes.plot(counts, counts, color="gray", linestyle=":", label="ideal")
    axes.set_xlabel("boards")
    axes.set_ylabel("speed-up of a token")
    axes.set_xticks(counts)
    axes.set_title(f"{model}, context {context}")
    axes.legend(fontsize=8)


def _roofline(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """The roof of each design, and its operating point for a plain token."""
    for name in designs:
        target = _target(name, model, boards, context)
        report = token_time(target, model, context)
        moved = report.bytes["weights"] + report.bytes["kv"]
        roofs = target.roofs
        reached = report.utilisation["compute"] * roofs.compute
        intensity = reached * report.latency_ms / 1e3 / moved
        ridge = roofs.compute / roofs.memory
        xs = [intensity / 4, ridge, 4 * max(ridge, intensity)]
        ys = [min(roofs.compute, x * roofs.memory) / 1e9 for x in xs]
        (line,) = axes.loglog(xs, ys, label=name)
        axes.loglog([intensity], [reached / 1e9], marker="o", color=line.get_color())
    axes.set_xlabel("multiply-accumulates per byte of memory")
    axes.set_ylabel("10⁹ multiply-accumulates per second and board")
    axes.set_title(f"{model}, context {context}: roof and a plain token")
    axes.legend(fontsize=8)


def _speculation(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Speed-up of tree speculation over verification length."""
    for name in designs:
        target = _target(name, model, boards, context)
        rounds = [speculate(target, context, length) for length in LENGTHS]
        gains = [entry.plain_s / entry.per_token for entry in rounds]
        (line,) = axes.plot(list(LENGTHS), gains, label=name)
        best = max(range(len(gains)), key=gains.__getitem__)
        axes.plot([LENGTHS[best]], [gains[best]], marker="o", color=line.get_color())
    axes.axhline(1.0, color="gray", linestyle=":")
    axes.set_xlabel("verification length")
    axes.set_ylabel("speed-up over plain decoding")
    axes.set_title(f"{model}, context {context}, {boards} board{'s' if boards > 1 else ''}")
    axes.legend(fontsize=8)


DRAWERS = {
    "breakdown": _breakdown,
    "scaling": _scaling,
    "roofline": _roofline,
    "speculation": _speculation,
}
