"""Links and file names in the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "models/*.md", "tests/**/*.md", "tools/**/*.md")
    for page in ROOT.glob(pattern)
)


def broken(page: Path, text: str) -> list[str]:
    """Relative link targets of a page that do not exist."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    return [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    assert not broken(page, page.read_text(encoding="utf-8"))


def test_a_broken_link_is_found() -> None:
    page = ROOT / "README.md"
    assert broken(page, "[a](docs/nowhere.md) [b](LICENSE)") == ["docs/nowhere.md"]


def test_the_threat_model_names_files_that_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:sdk|host|csrc|firmware|tests|requirements)/[^`]+)`", page)
    assert len(named) > 30 and [name for name in named if not (ROOT / name).exists()] == []


def test_the_threat_model_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    known = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 15 and named <= known, named - known
