"""Text for people: on a terminal it is folded between words, elsewhere each line stays whole."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

import click

NARROWEST = 40
_COLUMN = re.compile(r".*\S {2,}(?=\S)")  # up to the last column of a table's row


def show(text: str, err: bool = False) -> None:
    """Print text and a new line."""
    click.echo(for_people(text, err), err=err)


def for_people(text: str, err: bool = False) -> str:
    """Folded, where stdout (`err`: stderr) is a terminal."""
    stream = sys.stderr if err else sys.stdout
    return folded(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def folded(text: str, width: int) -> str:
    """Each line in at most `width` columns. What follows stands below the last column of a table's
    row, or two columns further in than the line began. Words stay whole, so one that is longer is
    left so."""
    width = max(width, NARROWEST)
    return "\n".join(_fold(line, width) for line in text.split("\n"))


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
