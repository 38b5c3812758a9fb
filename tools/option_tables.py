"""Writes the tables of arguments in docs/python.md from the described dataclasses.

    python -m tools.option_tables

A table lies between the lines `<!-- arguments of NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import re
from pathlib import Path

from lora_sdk.arguments.option import markdown_table
from lora_sdk.opening.options import EngineOptions
from lora_sdk.sampling import BeamSearchParams, SamplingParams

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
OWNERS: tuple[type, ...] = (EngineOptions, SamplingParams, BeamSearchParams)


def with_tables(page: str) -> str:
    """The page with its tables generated. ValueError: a table's markers are missing."""
    for owner in OWNERS:
        begin, end = (
            f"<!-- arguments of {owner.__name__} -->\n",
            f"<!-- end of {owner.__name__} -->",
        )
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        table = markdown_table(owner)
        page, count = re.subn(pattern, lambda _: begin + table + end, page, flags=re.DOTALL)  # noqa: B023
        if count != 1:
            raise ValueError(f"{begin.strip()}: {count} tables found, 1 expected")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
