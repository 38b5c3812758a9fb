"""overlays/rtl/vendor/kernels.yaml: what can be packed, its sources and its top."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lora_host.naming import did_you_mean
from tools.vendor_build.errors import BuildError

RTL = Path(__file__).resolve().parents[2] / "overlays" / "rtl"
DECLARED = "vendor/kernels.yaml"
_FIELDS = {"title", "module", "folders", "joins", "parameters", "banks", "links", "floorplan"}


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
        links=row["links"],
        floorplan=row.get("floorplan", {}),
    )


def sources(row: KernelRow, rtl: Path = RTL) -> list[Path]:
    """Its source files, packages first. BuildError where the top or one of the parts that it joins
    does not exist."""
    files = sorted(path for folder in row.folders for path in (rtl / folder).glob("*.sv"))
    if not any(_defines(path, row.module) for path in files):
        missing = [part for part in row.joins if not any((rtl / part).glob("*.sv"))]
        raise BuildError(
            f"kernel {row.name}: its top, module {row.module}, is in none of "
            f"overlays/rtl/{{{','.join(row.folders)}}}: what joins {', '.join(row.joins)} is "
            f"not written yet"
            + (f", nor is {', '.join(missing)}" if missing else "")
            + "; KERNEL=control builds the part that exists"
        )
    return sorted(files, key=lambda path: not path.stem.endswith("_types"))


def _defines(path: Path, module: str) -> bool:
    return re.search(rf"^module {module}\b", path.read_text(), re.MULTILINE) is not None
