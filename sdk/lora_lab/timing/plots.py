"""Plots of modelled times: breakdown, scaling, roofline, speculation. matplotlib is optional."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import counted, install
from lora_lab.timing.model import check_positions, speculate, token_time
from lora_lab.timing.report import part_title
from lora_lab.timing.target import Target, make_target, notes_of
from lora_sdk.model.shapes import find_config
from lora_sdk.plan.partition import BOARD_COUNTS, check_board_count

FORMATS = (".png", ".svg")
LENGTHS = range(1, 33)
FEW_MS = 0.1  # below, microseconds are shown
HOLLOW = "hollow, dashed, hatched: does not fit its board, or is a plan without source"
NO_HARDWARE = "no hardware"  # in the notes of designs of our own and of plans
SMALL = 0.012  # of the longest bar: what is thinner cannot be seen
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
    """Writes what `drawer` draws on its axes to `path`, PNG or SVG by its suffix. The title says
    first how the figures were found.

    RequestError: another suffix, no matplotlib, a file that cannot be written."""
    if path.suffix not in FORMATS:
        raise RequestError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}")
    plot = _pyplot()
    figure, axes = plot.subplots(figsize=(7.0, 4.2), layout="constrained")
    try:
        drawer(axes)
        axes.set_title(f"{label}: {axes.get_title()}" if axes.get_title() else label, fontsize=11)
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
        raise RequestError(f"plots need matplotlib; {install('plot')}") from None
    matplotlib.use("Agg")  # files only, no display
    matplotlib.rcParams["svg.hashsalt"] = "lora"  # equal plots give equal files
    from matplotlib import pyplot

    return pyplot


def _target(design: str, model: str, boards: int, context: int) -> Target:
    check_board_count(boards)
    config = find_config(model)
    check_positions(config, context)
    return make_target(design, None, config, boards)


def _fits(target: Target) -> bool:
    """False: by counts, or by its memory, the board is too small, or the design has no source."""
    return not _unbuilt(target) and not any("not fit" in note for note in target.notes)


def _unbuilt(target: Target) -> bool:
    return any(note.startswith(NO_HARDWARE) for note in target.notes)


def _name(target: Target) -> str:
    """With what a reader must know."""
    return f"{target.name} ({NO_HARDWARE})" if _unbuilt(target) else target.name


def _marker(target: Target, color: Any) -> dict[str, Any]:
    """A dot, hollow for what does not fit its board; with an edge, to be seen on its own line."""
    face, edge, size = (color, "black", 6) if _fits(target) else ("white", color, 9)
    return {
        "marker": "o", "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "color": color,
    }  # fmt: skip


def _line(target: Target) -> str:
    return "-" if _fits(target) else "--"


def _footnotes(
    axes: Any, targets: Sequence[Target], context: int, more: Sequence[str] = ()
) -> None:
    """What is to be known of the designs, below the axes."""
    lines = [] if all(map(_fits, targets)) else [HOLLOW]
    for name in dict.fromkeys(target.name for target in targets):
        notes = notes_of([(target, context) for target in targets if target.name == name])
        lines += [f"{name}: {note}" for note in notes if note != "modelled"]
    footnotes(axes, [*lines, *more])


def footnotes(axes: Any, lines: Sequence[str]) -> None:
    """Small print below the axes."""
    if lines:
        text = "\n".join(textwrap.fill(line, 140, subsequent_indent="   ") for line in lines)
        axes.figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color="dimgray")


def plain_ticks(axis: Any) -> None:
    """Numbers as they are on a logarithmic axis, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _breakdown(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Breakdown of a token's time: one stacked bar per design, or a bar per part of one design."""
    targets = [_target(name, model, boards, context) for name in designs]
    reports = [token_time(target, model, context) for target in targets]
    axes.set_title(f"{model}, context {context}, {counted(boards, 'board')}")
    parts = [{name: ms for name, ms in r.breakdown_ms.items() if ms > 1e-6} for r in reports]
    if len(reports) == 1:
        _parts(axes, parts[0], targets[0])
    else:
        _stacks(axes, _visible(parts), targets)
    fitted = [one.name for one in targets if one.small_operations_fitted]
    left_out = (
        f"{', '.join(fitted)}: activations, rotation, residual sums, quantizing and stores of "
        "K and V have no part of their own, as start-ups fitted to a paper's times contain them"
    )
    _footnotes(axes, targets, context, [left_out] if fitted else [])


def _unit(ms: float) -> tuple[str, float]:
    """The unit that a time is shown in, and how many of it a millisecond is."""
    return ("ms", 1.0) if ms >= FEW_MS else ("µs", 1e3)


def _time(ms: float) -> str:
    unit, scale = _unit(ms)
    return f"{ms * scale:.3g} {unit}"


def _hollow(patch: Any, target: Target) -> None:
    if not _fits(target):
        patch.set(facecolor="white", edgecolor=patch.get_facecolor(), hatch="///")


def _visible(bars: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The same parts; those that no bar shows are one, with their names."""
    longest = max(sum(bar.values()) for bar in bars)
    names = dict.fromkeys(name for bar in bars for name in bar)
    small = [n for n in names if max(bar.get(n, 0.0) for bar in bars) < SMALL * longest]
    rest = f"other ({', '.join(map(part_title, small))})" if small else ""
    found = []
    for bar in bars:
        shown = {part_title(n): bar.get(n, 0.0) for n in names if n not in small}
        if small:
            shown[textwrap.fill(rest, 24)] = sum(bar.get(n, 0.0) for n in small)
        found.append(shown)
    return found


def _stacks(axes: Any, bars: Sequence[dict[str, float]], targets: Sequence[Target]) -> None:
    """A bar for each design with its total above, hatched where it does not fit its board."""
    from matplotlib.patches import Patch

    unit, scale = _unit(max(sum(bar.values()) for bar in bars))
    bottom = [0.0] * len(bars)
    titles = [
        "\n".join((one.name, one.precision, *[f"({NO_HARDWARE})"] * _unbuilt(one)))
        for one in targets
    ]
    drawn: Any = None
    legend: list[Any] = []
    for number, part in enumerate(bars[0]):
        heights = [bar[part] * scale for bar in bars]
        drawn = axes.bar(titles, heights, bottom=bottom, color=f"C{number}")
        legend.insert(0, Patch(color=f"C{number}", label=part))
        for patch, target in zip(drawn, targets, strict=True):
            _hollow(patch, target)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.bar_label(drawn, [f"{total:.3g} {unit}" for total in bottom], padding=2, fontsize=8)
    axes.set_ylim(top=1.12 * max(bottom))
    axes.tick_params(axis="x", labelsize=min(8.0, 40 / len(bars)))  # names stay apart
    axes.set_ylabel(f"{unit} per token")
    axes.legend(handles=legend, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _parts(axes: Any, parts: dict[str, float], target: Target) -> None:
    """A horizontal bar per part, the longest on top, with its time and its share."""
    whole = sum(parts.values())
    unit, scale = _unit(whole)
    shown = sorted(parts.items(), key=lambda part: part[1])
    bars = axes.barh([part_title(name) for name, _ in shown], [ms * scale for _, ms in shown])
    for patch in bars:
        _hollow(patch, target)
    labels = [f"{_time(ms)}, {ms / whole:.1%}" for _, ms in shown]
    axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.margins(x=0.22)
    axes.set_xlabel(f"{unit} per token of {target.name}, {_time(whole)} in all")


def _scaling(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Speed-up over one board."""
    check_board_count(boards)
    counts = [count for count in BOARD_COUNTS if count <= boards]
    if len(counts) < 2:
        more = ", ".join(map(str, BOARD_COUNTS[1:-1]))
        raise RequestError(
            f"scaling up to 1 board: one point is no curve; expected {more} or {BOARD_COUNTS[-1]}"
        )
    seen: list[Target] = []
    for number, name in enumerate(designs):
        targets = [_target(name, model, count, context) for count in counts]
        times = [token_time(target, model, context).latency_ms for target in targets]
        gains = [times[0] / time for time in times]
        color = f"C{number}"
        reached = f"{_name(targets[0])}, {gains[-1]:.3g}x on {counts[-1]}"
        style = _line(targets[0])
        axes.plot(counts, gains, label=reached, linestyle=style, **_marker(targets[0], color))
        seen += targets
    axes.plot(counts, counts, color="gray", linestyle=":", label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(_fixed(counts))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_locator(_fixed([]))
    axes.set_xlabel("boards")
    axes.set_ylabel("speed-up of a token over one board")
    axes.set_title(f"{model}, context {context}")
    axes.legend(fontsize=8)
    _footnotes(axes, seen, context)


def _fixed(places: Sequence[int]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(places)


def _roofline(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """The roof of each design, and its operating point for a plain token."""
    targets = [_target(name, model, boards, context) for name in designs]
    for number, target in enumerate(targets):
        report = token_time(target, model, context)
        moved = report.bytes["weights"] + report.bytes["kv"]
        roofs, color = target.roofs, f"C{number}"
        reached = report.utilisation["compute"] * roofs.compute
        intensity = reached * report.latency_ms / 1e3 / moved
        ridge = roofs.compute / roofs.memory
        xs = [intensity / 4, ridge, 4 * max(ridge, intensity)]
        ys = [min(roofs.compute, x * roofs.memory) / 1e9 for x in xs]
        roof = min(roofs.compute, intensity * roofs.memory)
        above = len(targets) - 1 - number  # roofs that lie on each other: the first is the widest
        axes.loglog(xs, ys, color=color, linestyle=_line(target), linewidth=1.5 + 2 * above,
                    alpha=1.0 if above == 0 else 0.6,
                    label=f"{_name(target)}, {reached / roof:.0%} of its roof")  # fmt: skip
        axes.loglog([intensity], [reached / 1e9], **_marker(target, color))
    axes.plot([], [], marker="o", color="gray", linestyle="", label=f"a token at context {context}")
    axes.set_xlabel("MACs per byte of memory")
    axes.set_ylabel("GMAC/s of a board")
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.set_title(f"{model}, {counted(boards, 'board')}: roofs, and a plain token below them")
    axes.legend(fontsize=8)
    _footnotes(axes, targets, context)


def _speculation(axes: Any, designs: Sequence[str], model: str, boards: int, context: int) -> None:
    """Speed-up of tree speculation over verification length."""
    targets = [_target(name, model, boards, context) for name in designs]
    for number, target in enumerate(targets):
        rounds = [speculate(target, context, length) for length in LENGTHS]
        gains = [entry.plain_s / entry.per_token for entry in rounds]
        color = f"C{number}"
        best = max(range(len(gains)), key=gains.__getitem__)
        peak = f"{_name(target)}, best {gains[best]:.2f}x at {counted(LENGTHS[best], 'row')}"
        axes.plot(list(LENGTHS), gains, color=color, linestyle=_line(target), label=peak)
        axes.plot([LENGTHS[best]], [gains[best]], **_marker(target, color))
    axes.axhline(1.0, color="gray", linestyle=":", label="plain decoding")
    axes.set_xlabel("rows verified at once, 1 without a draft; dot: the best")
    axes.set_ylabel("speed-up over plain decoding")
    axes.set_title(f"{model}, context {context}, {counted(boards, 'board')}")
    axes.legend(fontsize=8)
    drafts = {target.draft for target in targets if target.draft is not None}
    bases = [f"acceptance of {draft.title}: 2 and 3 rows {draft.basis(2)}; others "
             f"{draft.basis(draft.published[0])}" for draft in drafts]  # fmt: skip
    _footnotes(axes, targets, context, bases)


DRAWERS = {
    "breakdown": _breakdown,
    "scaling": _scaling,
    "roofline": _roofline,
    "speculation": _speculation,
}
