"""Writes the table of model families in docs/reference/models.md: every `model_type` of the
registry, what its module reads from the configurations of its test models, and their names.

    python -m tools.family_table

The table lies between the lines `<!-- families -->` and `<!-- end of families -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lora_sdk.model.config import model_types, normalize
from lora_sdk.model.features import features
from lora_sdk.model.fields import Fields
from tests.variants import VARIANTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "models.md"
BEGIN, END = "<!-- families -->\n", "<!-- end of families -->"


def family_table(kinds: Iterable[str]) -> str:
    """A row for each `model_type`. ValueError: one has fewer than two test models."""
    rows = ["| `model_type` | features | compared with transformers as |", "|---|---|---|"]
    for kind in kinds:
        models = [one for one in VARIANTS if one.config["model_type"] == kind]
        if len(models) < 2:
            raise ValueError(f"{kind}: {len(models)} test models, at least 2 expected")
        found = features(*(normalize(Fields(one.config, one.name)) for one in models))
        names = ", ".join(f"{one.name}" for one in models)
        rows.append(f"| {kind} | {', '.join(found)} | {names} |")
    return "\n".join(rows) + "\n"


def with_table(page: str, kinds: Iterable[str]) -> str:
    """The page with its table generated. ValueError: the table's markers are missing."""
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    table = family_table(kinds)
    page, count = re.subn(pattern, lambda _: BEGIN + table + END, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{BEGIN.strip()}: {count} tables found, 1 expected")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), model_types()), encoding="utf-8")
