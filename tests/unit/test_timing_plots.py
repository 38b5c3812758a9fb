"""Plots are written, say that they are modelled, and show what their text says: what does not fit
its board, or has no source, is hollow, with the reason below."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_lab.timing import plots
from lora_lab.timing.cluster import Hosts, Load, cluster_report
from lora_lab.timing.cluster_text import draw_cluster
from lora_lab.timing.model import speculate, token_time
from lora_lab.timing.plots import DRAWERS, KINDS, draw
from lora_lab.timing.prices import prices
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import shape_config

PNG = b"\x89PNG"
TOO_LARGE, FITS = "own-u280", "own-u280-4096"


def axes_of(kind: str, designs: list[str], boards: int = 1, model: str = "gpt2-345m") -> Any:
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    axes = figure.subplots()
    DRAWERS[kind](axes, designs, model, boards, 64)
    return axes


def names(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn_and_says_modelled(kind: str, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    path = tmp_path / "plot.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw(kind, path, [TOO_LARGE], "gpt2-345m", 2, 64)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml") and "</svg>" in text
    assert ">modelled: gpt2-345m" in text and "does not fit the Alveo U280" in text


def test_png_by_suffix(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    draw("breakdown", path, ["lora-f", "dfx"], "gpt2-345m", 4, 64)
    assert path.read_bytes().startswith(PNG)


def test_what_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    for kind, name, words in (("pie", "a.svg", "not known"), ("scaling", "a.pdf", "ends in")):
        with pytest.raises(RequestError, match=words):
            draw(kind, tmp_path / name, ["lora-f"], "gpt2-345m", 1, 64)
    with pytest.raises(RequestError, match="no draft model"):
        draw("speculation", tmp_path / "a.svg", ["lora-f"], "gpt2-345m", 1, 64)


@pytest.mark.parametrize("kind", ["scaling", "roofline", "speculation"])
def test_points_of_what_does_not_fit_are_hollow_and_a_footnote_says_why(kind: str) -> None:
    axes = axes_of(kind, [TOO_LARGE, FITS, "lora-f"][: 2 if kind == "speculation" else 3], boards=2)
    dots = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
    filled = [dot.get_markerfacecolor() != "white" for dot in dots]
    assert filled == [False, False, True][: len(dots)] and len(dots) >= 2
    note = axes.figure.get_supxlabel()
    assert "hollow, dashed, hatched: does not fit its board" in note
    assert f"{TOO_LARGE}: no hardware of this design exists" in " ".join(note.split())
    assert "lora-f" not in note  # built, by its paper
    assert " attention alone would add " in " ".join(note.split())
    solid = axes_of(kind, ["lora-f"], boards=2) if kind != "speculation" else None
    assert solid is None or solid.figure.get_supxlabel() == ""


def test_scaling_from_one_board_that_cannot_hold_the_model_says_so() -> None:
    axes = axes_of("scaling", ["own-u280"], boards=8, model="llama2-70b")
    note = " ".join(axes.figure.get_supxlabel().split())
    assert "does not fit 1 board: " in note and "timed as if it did" in note
    assert "does not fit 8 boards" not in note


def test_plans_and_designs_of_a_file_are_marked_as_our_own_are(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine: {base: own-u280-4096, lanes: 14}")
    designs = ["lora-q", "wide-u280", "source-u280", str(tmp_path / "mine.yaml")]
    axes = axes_of("breakdown", designs, model="llama2-7b")
    labels = [label.get_text() for label in axes.get_xticklabels()]
    own = "{}\nW4A8\n(no hardware)".format
    assert labels == ["lora-q\nW8A8", own("wide-u280"), "source-u280\nW4A8", own("mine")]
    note = " ".join(axes.figure.get_supxlabel().split())
    assert "is a plan without source" in note
    assert "lora-q: activations, rotation" in note and "have no part of their own" in note
    hatched = [bool(patch.get_hatch()) for patch in axes.containers[0]]
    assert hatched == [False, True, False, True]
    roofs = axes_of("roofline", ["own-u280-4096", "wide-u280"], model="llama2-7b")
    assert [name.partition(",")[0] for name in names(roofs)[:2]] == [
        "own-u280-4096 (no hardware)", "wide-u280 (no hardware)",
    ]  # fmt: skip
    wide = [line.get_linewidth() for line in roofs.lines if len(line.get_xdata()) > 1]
    assert wide[0] > wide[1]  # seen where they lie on each other


def test_scaling_of_what_does_not_fit_is_dashed() -> None:
    lines = axes_of("scaling", [TOO_LARGE, "lora-f"], boards=2).lines
    assert [line.get_linestyle() for line in lines] == ["--", "-", ":"]


def test_scaling_has_the_boards_that_are_asked_for_on_log2_axes() -> None:
    axes = axes_of("scaling", [TOO_LARGE], boards=4)
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 4], [1, 2, 4]]
    axes.figure.canvas.draw()
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == ["1", "2", "4"]
        assert not list(axis.get_minorticklocs())
    places = [axes.transData.transform((count, count)) for count in (1, 2, 4)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps[0] == pytest.approx(steps[1])
    with pytest.raises(RequestError, match="one point is no curve; expected 2, 4, 8, 16, 32 or 64"):
        axes_of("scaling", [TOO_LARGE], boards=1)


def test_a_breakdown_of_one_design_names_each_part_with_its_share() -> None:
    axes = axes_of("breakdown", [FITS])
    parts = [label.get_text() for label in axes.get_yticklabels()]
    shares = [label.get_text().rpartition(" ")[2] for label in axes.texts]
    assert {"weights", "dispatch", "vector unit"} <= set(parts) and len(shares) == len(parts)
    assert sum(float(share.removesuffix("%")) for share in shares) == pytest.approx(100, abs=0.5)
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(widths)
    assert all("µs" in label.get_text() for label in axes.texts[:2])  # not 0.000769 ms
    assert all(bar.get_hatch() for bar in axes.patches)  # fits, but has no source
    assert not any(bar.get_hatch() for bar in axes_of("breakdown", ["lora-f"]).patches)


def test_a_breakdown_of_several_has_totals_and_names_what_can_be_seen() -> None:
    designs = [TOO_LARGE, "own-v80", "lora-f", "lora-q"]
    axes = axes_of("breakdown", designs, model="llama2-7b")
    reports = [
        token_time(make_target(name, None, shape_config("llama2-7b"), 1), "", 64)
        for name in designs
    ]
    assert [t.get_text() for t in axes.texts] == [f"{r.latency_ms:.3g} ms" for r in reports]
    top = axes.get_ylim()[1]
    assert top > 1.05 * max(report.latency_ms for report in reports)  # room for the total
    hatched = [bool(patch.get_hatch()) for patch in axes.containers[0]]
    assert hatched == [True, True, True, False]  # cells, no source, FP16 weights
    shown = names(axes)
    assert shown[-1] == "weights" and shown[0].startswith("other (") and "host" in shown[0]
    longest = max(report.latency_ms for report in reports)
    for container in axes.containers[:-1]:
        assert max(patch.get_height() for patch in container) >= plots.SMALL * longest


def test_a_small_models_breakdown_is_in_microseconds() -> None:
    axes = axes_of("breakdown", ["own-v80", "own-u280"], boards=8)
    unit = axes.get_ylabel().split()[0]
    whole = token_time(make_target("own-u280", None, shape_config("gpt2-345m"), 8), "", 64)
    assert unit == ("ms" if whole.latency_ms >= plots.FEW_MS else "µs")
    assert [plots._time(ms) for ms in (10.451, 0.769e-3)] == ["10.5 ms", "0.769 µs"]


def test_a_roofline_is_in_gmacs_and_explains_its_dot() -> None:
    axes = axes_of("roofline", [FITS], model="llama2-7b")
    assert axes.get_ylabel() == "GMAC/s of a board"
    assert names(axes)[-1] == "a token at context 64" and "% of its roof" in names(axes)[0]
    roof = max(axes.lines[0].get_ydata())
    assert roof == pytest.approx(4096 * 250e6 / 1e9)  # multipliers times clock
    axes.figure.canvas.draw()
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert "1000" in labels and not any("10^" in label for label in labels)


def test_speculation_marks_its_peak() -> None:
    axes = axes_of("speculation", [TOO_LARGE], model="llama2-7b")
    target = make_target(TOO_LARGE, None, shape_config("llama2-7b"), 1)
    best = speculate(target, 64)
    gain = best.plain_s / best.per_token
    assert names(axes)[0] == f"own-u280 (no hardware), best {gain:.2f}x at {best.length} rows"
    curve, dot = axes.lines[:2]
    assert "2 and 3 rows interpolated" in " ".join(axes.figure.get_supxlabel().split())
    assert list(dot.get_xdata()) == [best.length] and max(curve.get_ydata()) == dot.get_ydata()[0]


def test_splits_of_hosts_are_hollow_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    axes = figure.subplots()
    monkeypatch.setattr("lora_lab.timing.cluster_text.save", lambda path, drawer: drawer(axes))
    for design, face in ((TOO_LARGE, "white"), ("own-v80", "white"), ("lora-q", "auto")):
        axes.clear()
        hosts = Hosts(design, None, 1, 2, prices(None), False)
        found = cluster_report(shape_config("gpt2-345m"), "gpt2-345m", hosts, Load(64, None))
        draw_cluster(tmp_path / "a.svg", found)
        faces = {line.get_markerfacecolor() for line in axes.lines}
        assert (faces == {"white"}) == (face == "white")
        assert ("hollow" in figure.get_supxlabel()) == (face == "white")


def test_the_picture_of_the_docs_has_these_parts() -> None:
    """Text is drawn as outlines; matplotlib keeps it in comments."""
    picture = (Path(__file__).parents[2] / "docs" / "timing.svg").read_text()
    designs = ["lora-q", "flightllm", "flightllm-merged", "own-u280", "own-v80"]
    axes = axes_of_docs(designs)
    for text in ("modelled: llama2-7b, context 128, 1 board", "(no hardware)", "hollow, dashed",
                 *(t.get_text() for t in axes.texts), *names(axes)[1:], *designs):  # fmt: skip
        assert f"<!-- {text}" in picture, text


def axes_of_docs(designs: list[str]) -> Any:
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    axes = figure.subplots()
    DRAWERS["breakdown"](axes, designs, "llama2-7b", 1, 128)
    return axes
