"""What commands say fits a terminal of 80 columns, and is folded between words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from lora_sdk.cli.folding import folded
from lora_sdk.cli.grouped_help import name_of
from lora_sdk.cli.main import lora
from lora_sdk.cli.run_command import GROUPS, lora_run
from tests.commands import LORA, RUN, command
from tests.terminal import on_terminal

SAID = [
    "plan --model llama2-70b --boards 64 --stages 4",
    "plan --boards 2 --beams 4 --batch 8 --requests",
    "plan --model llama2-7b --boards 2",
    "plan --model nosuchfolder/of/a/model --boards 3 --context 100",
    "lab model --validate",
    "lab model --resources",
    "lab model --list",
    "lab model --design own-u280 --model llama2-7b",
    "lab model --design own-u280 --model llama2-7b --beams 4",
    "lab model --design own-u280 --model llama2-7b --boards 8 --hosts 4",
    "lab model --fleet examples/fleet.yaml",
    "lab torture --kinds",
    "lab spec show",
    "doctor",
    "list",
    "links --device emu:u280 --device emu:u280",
    "inspect models/demo",
    "nosuchcommand",
]


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, group
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _commands(found, f"{path} {name}")
        elif found is not None:
            yield f"{path} {name}", found


HELP = [*_commands(lora, "lora"), ("lora-run", lora_run)]


@pytest.mark.parametrize(("path", "found"), [pytest.param(*one, id=one[0]) for one in HELP])
def test_help_fits(path: str, found: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = found.get_help(click.Context(found, info_name=path))
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\b" not in text


@pytest.mark.parametrize("line", SAID)
def test_what_is_said_fits(line: str) -> None:
    screen = on_terminal(LORA, *shlex.split(line))
    assert screen.text.strip() and "Traceback" not in screen.text
    assert screen.too_long() == []


def test_statistics_fit_and_the_text_stays_as_it_is() -> None:
    arguments = ("--boards", 2, "--stats", "-n", 8, "-p", "def main(")
    screen = on_terminal(RUN, *arguments)
    assert screen.status == 0 and "modelled: of these" in screen.text
    assert screen.too_long() == []
    wide = max(command(RUN, *arguments).stderr.decode().splitlines(), key=len)
    assert len(wide) > 80  # where nobody looks, a line stays whole


def test_a_narrow_terminal_is_folded_too() -> None:
    screen = on_terminal(LORA, "lab", "model", "--list", columns=60)
    assert screen.too_long(60) == []


def test_folding_keeps_words_columns_and_long_paths() -> None:
    path = "/" + "x" * 90
    assert folded(f"  note: see {path} for it", 40).splitlines() == [
        "  note: see",
        f"    {path}",
        "    for it",
    ]
    row = "given      200 MHz  " + "of LORA's table four " * 3
    lines = folded(row, 50).splitlines()
    assert len(lines) > 1 and {line[:20] for line in lines[1:]} == {" " * 20}
    assert " ".join(" ".join(lines).split()) == " ".join(row.split())
    assert folded("an own-u280-4096 in words", 40) == "an own-u280-4096 in words"
    assert "own-u280-4096" in folded("thirty columns of text, and then own-u280-4096", 40)


def test_options_of_lora_run_are_in_one_group_each_and_ten_come_first() -> None:
    names = [name for group in GROUPS.values() for name in group]
    parameters = lora_run.get_params(click.Context(lora_run))
    options = [name_of(one) for one in parameters if isinstance(one, click.Option)]
    assert sorted(names) == sorted(options)
    assert len(next(iter(GROUPS.values()))) == 10
    text = lora_run.get_help(click.Context(lora_run, info_name="lora-run"))
    titles = re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)
    assert titles[: len(GROUPS)] == list(GROUPS) and "Others" not in titles
