"""What commands say fits a terminal of 80 columns, and is folded between words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lora_sdk.cli.folding import GLUE, folded
from lora_sdk.cli.grouped_help import GroupedCommand, name_of
from lora_sdk.cli.main import lora
from lora_sdk.cli.run_command import lora_run
from lora_sdk.cli.serve import serve
from tests.commands import LORA, RUN, command
from tests.processes import ROOT
from tests.terminal import on_terminal
from tests.variants import variant, write_checkpoint

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
    "lab torture --runs 1",
    "lab spec show",
    "lab spec show --full",
    "lab spec design own-u280 llama2-7b -c 128",
    "lab spec tune models/demo_draft lookup --text {text} --prompts 12 -o {out}/table.json",
    "lab spec collect models/demo_draft lookup --text {text} --prompts 12 -o {out}/ranks.npz",
    "lab bench --boards 2 --rounds 1 --tokens 8",
    "lab bench --suite --only demo-size --rounds 1",
    "lab dse --model gpt2-345m --precision fp16 --no-prefetch",
    "lab plot scaling --boards 4 -o {out}/plot.svg",
    "lab synth {tiny} {out}/synth",
    "diff --kv fp16,int8-heads -p hello -n 2",
    "doctor",
    "list",
    "links --device emu:u280 --device emu:u280",
    "inspect overlays/lora_f_u280/lora_f_u280.xclbin",
    "inspect overlays/lora_f_v80/lora_f_v80.vrtbin",
    "validate --boards 2",
    "eval --text {short}",
    "quantize {tiny} {out}/quantized --scheme w8a8 --calibration {text} --windows 2",
    "batch {prompts} {out}/answers.jsonl",
    "overlay build lora_f_u280 --out {out}",
    "boardd init {out}/keys --host lab1 --host 10.0.0.7",
    "boardd serve --board emu:u280 --listen 127.0.0.1:7410 --keys {out}/nosuchkeys",
    "boardd status tcp:127.0.0.1:9",
    "chat --model nosuchfolder/of/a/model",
    "fleet examples/nosuchfleet_of_this_name.yaml examples/prompts.jsonl",
    "load --url http://127.0.0.1:9",
    "program --device emu:u280",
    "ray start --head-with-a-mistake",
    "ray status",
    "ray stop",
    "reset --device emu:u280",
    "serve --boards 3 --model nosuchfolder/of/a/model",
    "top --url http://127.0.0.1:9",
    "nosuchcommand",
]
"""Every command, as a person sees it; where it needs a server or a card, what it says of that."""


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
    assert [line for line in text.splitlines() if re.search(r"\w-$", line)] == []
    assert "\b" not in text


def test_every_command_is_looked_at() -> None:
    leaves = [path for path, found in HELP if not isinstance(found, click.Group)]
    said = [f"lora {line} " for line in SAID] + ["lora-run "]
    assert [path for path in leaves if not any(s.startswith(f"{path} ") for s in said)] == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those that the lines of SAID name."""
    folder = tmp_path_factory.mktemp("said")
    tiny = write_checkpoint(variant("llama_linear"), folder / "tiny", "x3")
    (folder / "short.txt").write_text("def main(one, two):\n    return one + two\n")
    (folder / "prompts.jsonl").write_text('{"prompt": "import os", "max_tokens": 4}\n')
    return {
        "out": folder, "tiny": tiny, "text": ROOT / "tests" / "data" / "heldout.txt",
        "short": folder / "short.txt", "prompts": folder / "prompts.jsonl",
    }  # fmt: skip


@pytest.mark.parametrize("line", SAID)
def test_what_is_said_fits(line: str, files: dict[str, Path]) -> None:
    screen = on_terminal(LORA, *shlex.split(line.format(**files)))
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
    assert folded(f"{'port ' * 6}status{GLUE}0x11ff here", 40).splitlines() == [
        "port port port port port port", f"  status{GLUE}0x11ff here",
    ]  # fmt: skip
    assert folded("an own-u280-4096 in words", 40) == "an own-u280-4096 in words"
    assert "own-u280-4096" in folded("thirty columns of text, and then own-u280-4096", 40)


@pytest.mark.parametrize("one", [lora_run, serve], ids=lambda one: one.name)
def test_options_are_in_one_group_each_and_ten_come_first(one: GroupedCommand) -> None:
    names = [name for group in one.groups.values() for name in group]
    parameters = one.get_params(click.Context(one))
    options = [name_of(each) for each in parameters if isinstance(each, click.Option)]
    assert sorted(names) == sorted(options)
    assert len(next(iter(one.groups.values()))) == 10
    text = one.get_help(click.Context(one, info_name=one.name))
    titles = re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)
    assert titles[: len(one.groups)] == list(one.groups) and "Others" not in titles


def test_a_wide_table_of_markdown_becomes_paragraphs() -> None:
    rows = ["| kind | found by | |", "|---|---|---|", "| frame lost | watchdog of the board | ok |"]
    assert folded("\n".join(rows), 60).splitlines() == rows
    assert folded("\n".join(["before", *rows, "", "behind"]), 40).splitlines() == [
        "before",
        "frame lost",
        "  found by: watchdog of the board",
        "  ok",
        "",
        "behind",
    ]
