"""Which file `kernels="rtl"` loads, and how it refuses others."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import rtl
from lora_host.errors import RequestError


def refusal(path: Path) -> str:
    with pytest.raises(RequestError) as caught:
        rtl.load(path)
    text = str(caught.value)
    assert str(path) in text and "make rtl-build" in text and "\n" not in text
    return text


def test_a_missing_library_names_what_builds_it(tmp_path: Path) -> None:
    assert "Verilator" in refusal(tmp_path / rtl.LIBRARY)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    assert "not a plain file" in refusal(tmp_path)
    text = tmp_path / "text.so"
    text.write_text("not a library")
    assert "cannot be loaded" in refusal(text)
    link = tmp_path / "link.so"
    link.symlink_to(text)
    assert "not a plain file" in refusal(link)


def test_another_library_is_refused() -> None:
    """A real library without the interface."""
    import _ctypes

    assert "lora_rtl_version" in refusal(Path(_ctypes.__file__))


def test_the_library_is_the_packages_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no current folder decides."""
    asked: list[Path] = []
    monkeypatch.setattr(rtl, "load", asked.append)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rtl.library.cache_clear()
    rtl.library()
    rtl.library.cache_clear()
    assert asked == [Path(rtl.__file__).resolve().parent / rtl.LIBRARY]
