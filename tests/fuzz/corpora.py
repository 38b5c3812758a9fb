"""The committed inputs of each target, one folder a target."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPORA = HERE / "corpus"


def inputs(target: str) -> list[Path]:
    """Of one target, by name."""
    return sorted(path for path in (CORPORA / target).glob("*") if path.is_file())
