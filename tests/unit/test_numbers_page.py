"""docs/numbers.md beside what cites it and what it repeats: every citation names a section that
exists, and the page's coefficients are those of the header."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host.coefficients import parse_header

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/numbers.md").read_text()
FOLDERS = ("sdk", "host", "csrc", "firmware", "tests", "tools", "docs", "examples")
SUFFIXES = {".py", ".c", ".h", ".md"}
# "docs/numbers.md, 3.4" or "docs/numbers.md, 3.4 and 3.5", over line ends and comment marks
GAP = r"[\s*#]+"
SECTION = r"\d+(?:\.\d+)?"
CITATION = re.compile(rf"docs/numbers\.md((?:(?:,|{GAP}and|{GAP}to){GAP}{SECTION})+)")
MENTION = re.compile(r"numbers\.md")
COEFFICIENTS = {
    "C": "exp_c", "LOG2E": "log2e", "LN2_HI": "ln2_hi", "LN2_LO": "ln2_lo", "LOG2_C": "log2_c",
    "EXP2_C": "exp2_c", "LN2": "ln2", "SQRT_HALF": "sqrt_half", "SIN_C": "sin_c",
    "COS_C": "cos_c", "TANH_C": "tanh_c", "TWO_OVER_PI": "two_over_pi", "P1 P2 P3": "half_pi",
}  # fmt: skip


def sections(page: str) -> set[str]:
    """Numbers of the page's headings: "3", "3.4"."""
    return set(re.findall(rf"(?m)^##+ ({SECTION})\.? ", page))


def wrong(text: str, known: set[str]) -> list[str]:
    """What `text` cites of the page that does not exist, and mentions that cite no section."""
    cited = list(CITATION.finditer(text))
    found = [n for c in cited for n in re.findall(SECTION, c[1]) if n not in known]
    starts = {c.start() + len("docs/") for c in cited}
    return found + ["no section" for m in MENTION.finditer(text) if m.start() not in starts]


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.name != Path(__file__).name:
                yield path


def test_every_citation_names_a_section() -> None:
    known = sections(PAGE)
    found = {}
    for path in sources():
        text = path.read_text(errors="replace")
        bad = wrong(text, known)
        if path.suffix == ".md":  # prose may name the page as a whole
            bad = [b for b in bad if b != "no section"]
        if bad:
            found[str(path.relative_to(ROOT))] = bad
    assert not found


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("docs/numbers.md, 3.4", []),
        ("(docs/numbers.md, 3.4 and 2.1)", []),
        ("/* docs/numbers.md,\n * 3.4, 6 */", []),
        ("docs/numbers.md, 3.99", ["3.99"]),
        ("docs/numbers.md, 3.4 and 13.1", ["13.1"]),
        ("docs/numbers.md says so", ["no section"]),
        ("see numbers.md, 3.4", ["no section"]),
    ],
)
def test_a_wrong_citation_is_found(text: str, bad: list[str]) -> None:
    assert wrong(text, sections(PAGE)) == bad


def test_the_sections_that_the_page_refers_to_exist() -> None:
    prose = re.sub(r"(?s)### 4\.6.*?(?=\n## )", "", PAGE)
    references = re.findall(r"(?<![\d.x-])([1-9]\.\d{1,2})(?![\d.e]| %)", prose)
    assert not sorted(set(references) - sections(PAGE))


def test_sections_are_numbered_in_order() -> None:
    major, minor = 0, 0
    for level, number in re.findall(rf"(?m)^(##+) ({SECTION})\.? ", PAGE):
        if level == "##":
            major, minor = major + 1, 0
            assert number == str(major)
        else:
            minor += 1
            assert number == f"{major}.{minor}"


def test_the_coefficients_are_the_headers() -> None:
    header = parse_header((ROOT / "csrc/include/lora/coefficients.h").read_text())
    block = re.search(r"(?s)### 4\.6.*?```\n(.*?)```", PAGE)
    assert block is not None
    found: dict[str, list[float]] = {}
    for line in block[1].splitlines():
        name = re.sub(r"\s*-?0x.*", "", line)
        values = [float.fromhex(word) for word in re.findall(r"-?0x\S+", line)]
        if name and values:
            found[name] = values
        elif values:  # a line that goes on
            found[list(found)[-1]] += values
    assert {COEFFICIENTS[name]: values for name, values in found.items()} == {
        name: header[name].tolist() for name in COEFFICIENTS.values()
    }


@pytest.mark.parametrize("kind", ["tanh", "erf"])
def test_the_tables_have_the_pages_checksums(kind: str) -> None:
    header = parse_header((ROOT / "csrc/include/lora/coefficients.h").read_text())
    row = re.search(rf"(?m)^\| {kind}: .* \| `(\w{{8}})` \| `(\w{{8}})` \|$", PAGE)
    assert row is not None
    for part, expected in zip("ab", row.groups(), strict=True):
        table = np.ascontiguousarray(header[f"gelu_{kind}_{part}"], "<f4")
        assert f"{zlib.crc32(table.tobytes()):08x}" == expected
