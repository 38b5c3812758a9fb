"""Plots are written, and say that they are modelled."""

from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_lab.timing.plots import DRAWERS, KINDS, draw

PNG = b"\x89PNG"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.svg"
    draw(kind, path, ["own-u280"], "gpt2-345m", 2, 64)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml") and "</svg>" in text


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


def test_scaling_has_the_boards_that_are_asked_for() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    DRAWERS["scaling"](axes, ["own-u280"], "gpt2-345m", 4, 64)
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 4], [1, 2, 4]]
    with pytest.raises(RequestError, match="one point is no curve; expected 2, 4, 8, 16, 32 or 64"):
        DRAWERS["scaling"](axes, ["own-u280"], "gpt2-345m", 1, 64)


def test_a_breakdown_of_one_design_names_each_part_with_its_share() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    DRAWERS["breakdown"](axes, ["own-u280"], "gpt2-345m", 1, 64)
    names = [label.get_text() for label in axes.get_yticklabels()]
    shares = [label.get_text().rpartition(" ")[2] for label in axes.texts]
    assert {"weights", "dispatch", "vfu"} <= set(names) and len(shares) == len(names)
    assert sum(float(share.removesuffix("%")) for share in shares) == pytest.approx(100, abs=0.5)
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(widths)
