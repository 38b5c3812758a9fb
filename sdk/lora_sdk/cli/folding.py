"""Text for people: on a terminal it is folded between words, elsewhere each line stays whole."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import click

NARROWEST = 40
GLUE = "\u00a0"  # a space at which no line is folded
_COLUMN = re.compile(r".*\S {2,}(?=\S)")  # up to the last column of a table's row


def show(text: str, err: bool = False) -> None:
    """Print text and a new line."""
    click.echo(for_people(text, err), err=err)


def for_people(text: str, err: bool = False) -> str:
    """Folded, where stdout (`err`: stderr) is a terminal."""
    stream = sys.stderr if err else sys.stdout
    wide = folded(text, shutil.get_terminal_size().columns) if stream.isatty() else text
    return wide.replace(GLUE, " ")


def folded(text: str, width: int) -> str:
    """Each line in at most `width` columns. What follows stands below the last column of a table's
    row, or two columns further in than the line began. Words stay whole, so one that is longer is
    left so. Of a Markdown table that is wider each row is a paragraph, a line a column."""
    width = max(width, NARROWEST)
    return "\n".join(_fold(line, width) for line in _narrow(text.split("\n"), width))


def _narrow(lines: Iterable[str], width: int) -> Iterator[str]:
    """`lines` with tables of Markdown that are wider than `width` as paragraphs."""
    for table, found in groupby(lines, lambda line: line.startswith("|")):
        block = list(found)
        yield from _paragraphs(block) if table and max(map(len, block)) > width else block


def _paragraphs(table: Sequence[str]) -> Iterator[str]:
    """A Markdown table's rows: the first cell, then each further one below its column's name."""
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    for cells in rows:
        yield cells[0]
        for head, cell in zip(heads[1:], cells[1:], strict=True):
            if cell:
                yield f"  {head}: {cell}" if head else f"  {cell}"


def _fold(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    column = _COLUMN.match(line, 0, width * 2 // 3)
    hang = len(column[0]) if column else len(line) - len(line.lstrip()) + 2
    return "\n".join(
        textwrap.wrap(
            line, width, subsequent_indent=" " * hang, break_long_words=False,
            break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True,
        )
    )  # fmt: skip
