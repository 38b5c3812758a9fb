"""Plots are written, and say that they are modelled."""

from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.timing.plots import KINDS, draw

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
