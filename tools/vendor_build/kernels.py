"""overlays/rtl/vendor/kernels.yaml: what can be packed, its sources and its top."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lora_host.naming import did_you_mean
from tools.rtl_hierarchy import used_names
from tools.vendor_build.errors import BuildError

ROOT = Path(__file__).resolve().parents[2]
OVERLAYS = ROOT / "overlays"
RTL = OVERLAYS / "rtl"
DECLARED = "vendor/kernels.yaml"
_FIELDS = {
    "title", "module", "folders", "joins", "parameters", "banks", "id_bits", "links", "floorplan",
}  # fmt: skip


@dataclass(frozen=True)
class KernelRow:
    """A row of kernels.yaml. `floorplan`: by board, instance -> SLR."""

    name: str
    title: str
    module: str
    folders: tuple[str, ...]
    joins: tuple[str, ...]
    parameters: tuple[str, ...]
    all_banks: bool
    id_bits: int
    links: bool
    floorplan: dict[str, dict[str, str]]


def kernel_row(name: str, rtl: Path = RTL) -> KernelRow:
    """The row `name`. BuildError names a field that is missing or unknown."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load((rtl / DECLARED).read_text())["kernels"]
    if name not in rows:
        raise BuildError(
            f"kernel {name!r}: not in {DECLARED}; {did_you_mean(name, tuple(rows))}", usage=True
        )
    row = rows[name]
    wrong = sorted((row.keys() ^ _FIELDS) - {"floorplan"})
    if wrong or row["banks"] not in ("all", "control"):
        raise BuildError(
            f"{DECLARED}: kernel {name}: {wrong or 'banks'} found, {sorted(_FIELDS)} expected"
        )
    return KernelRow(
        name=name,
        title=row["title"],
        module=row["module"],
        folders=tuple(row["folders"]),
        joins=tuple(row["joins"]),
        parameters=tuple(row["parameters"]),
        all_banks=row["banks"] == "all",
        id_bits=row["id_bits"],
        links=row["links"],
        floorplan=row.get("floorplan", {}),
    )


def sources(row: KernelRow, rtl: Path = RTL) -> list[Path]:
    """The files of its folders that its top needs, packages first. BuildError where the top or one
    of the parts that it joins does not exist."""
    files = sorted(path for folder in row.folders for path in (rtl / folder).glob("*.sv"))
    by_name = {path.stem: path for path in files}
    missing = [part for part in row.joins if not any((rtl / part).glob("*.sv"))]
    if row.module not in by_name or missing:
        raise BuildError(
            f"kernel {row.name}: module {row.module} and what it joins ({', '.join(row.joins)}) "
            f"expected in overlays/rtl/{{{','.join(row.folders)}}}: "
            f"{', '.join([*missing, *(() if row.module in by_name else (row.module,))])} not found"
        )
    return _needed(row.module, {name: path.read_text() for name, path in by_name.items()}, by_name)


def _needed(top: str, texts: dict[str, str], paths: dict[str, Path]) -> list[Path]:
    """The files of `top` and of all modules and packages that one of them uses; a package comes
    before what uses it, modules last. A file has the name of what it defines."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        for other in sorted(used_names(texts[name]) & texts.keys()):
            visit(other)
        found[name] = None

    visit(top)
    order = sorted(found, key=lambda name: not re.search(r"^package ", texts[name], re.MULTILINE))
    return [paths[name] for name in order]
