"""An argument is described once: signature, docstring, flags, checks and docs agree."""

from __future__ import annotations

import importlib
import inspect
import io
import pydoc
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from lora_host.errors import RequestError
from lora_lab.cli.main import COMMANDS as LAB
from lora_sdk import BeamSearchParams, Engine, SamplingParams
from lora_sdk.arguments.option import Option, check_options, markdown_table, option, options_of
from lora_sdk.cli.main import COMMANDS
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run
from lora_sdk.opening.options import EngineOptions
from lora_sdk.sampling.beam_params import BEAM_FIELDS
from tools.option_tables import PAGE, with_tables

OWNERS = (EngineOptions, SamplingParams)
SHARED = ("bench", "eval", "links", "plan", "program", "reset", "validate")
DESCRIBED = [(owner, name) for owner in OWNERS for name in options_of(owner)]
IDS = [f"{owner.__name__}.{name}" for owner, name in DESCRIBED]


def command_flags(command: click.Command) -> dict[str, click.Option]:
    return {p.name: p for p in command.params if isinstance(p, click.Option) and p.name}


@pytest.mark.parametrize(("owner", "name"), DESCRIBED, ids=IDS)
def test_a_description_says_what_it_is_and_its_default_fits(owner: type, name: str) -> None:
    described = options_of(owner)[name]
    assert described.help and not described.help.endswith(".")
    described.check(described.default)


def test_the_engine_takes_the_fields_by_name_and_default() -> None:
    found = inspect.signature(Engine).parameters
    assert {n: p.default for n, p in found.items()} == {
        n: o.default for n, o in options_of(EngineOptions).items()
    }


@pytest.mark.parametrize("shown", [Engine, SamplingParams, EngineOptions])
def test_help_lists_every_argument_with_its_text(shown: type) -> None:
    text = " ".join(pydoc.plain(pydoc.render_doc(shown)).replace("|", " ").split())
    owner = EngineOptions if shown is Engine else shown
    for name, described in options_of(owner).items():
        assert f"{name}: {described.help}. " in text.replace("- ", "-")


def imported(name: str) -> click.Command:
    module, attribute = COMMANDS[name].location.split(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


SAME = {"stop", "bad_words", "logit_bias", "stop_token_ids", "allowed_token_ids"}  # none of either


def test_defaults_that_differ_are_in_one_table() -> None:
    """Of flags beside the fields that they set, and of what a request to a server leaves out."""
    from lora_sdk.serve.completions import CompletionBody

    fields = {**options_of(EngineOptions), **options_of(SamplingParams)}
    different = set()
    for command in (lora_run, *map(imported, ("batch", "chat", "fleet", "serve"))):
        for name, flag in command_flags(command).items():
            one = fields.get(name)
            if one is not None and not one.many and flag.default != one.default:
                different.add(name)
    served = {name: one.default for name, one in CompletionBody.model_fields.items()}
    for name, one in options_of(SamplingParams).items():
        if name in served and not one.many and served[name] != one.default:
            different.add(name)
    text = (PAGE.parent / "python.md").read_text().split("## Defaults that differ")[1]
    rows = {line.split("|")[1].strip().strip("`") for line in text.split("##")[0].split("\n")
            if line.startswith("| `")}  # fmt: skip
    assert different - SAME == rows


def test_help_of_the_engine_begins_with_three_lines_of_use() -> None:
    """They run; the signature before them is short, and has all parameters for programs."""
    lines = pydoc.plain(pydoc.render_doc(Engine)).splitlines()
    body = [line.removeprefix(" |").removeprefix("  ") for line in lines[3:]]
    assert body[0] == "Engine(model=None, boards=None, devices=(), ...)" and body[1] == ""
    assert body[2].startswith("with Engine(") and body[5] == ""
    written = "\n".join(body[2:5]).replace('"path/to/model", boards=4', "boards=2")
    found: dict[str, Any] = {"Engine": Engine}
    with redirect_stdout(io.StringIO()) as printed:
        exec(written, found)
    assert printed.getvalue().strip() and found["answer"].text.strip()


def test_an_unknown_argument_is_named_with_its_neighbour() -> None:
    with pytest.raises(RequestError, match="argument 'bords' is unknown; did you mean 'boards'"):
        Engine(bords=4)  # type: ignore[call-arg]
    with pytest.raises(RequestError, match="'temprature' is unknown; did you mean 'temperature'"):
        SamplingParams.from_mapping({"temprature": 1})
    with pytest.raises(RequestError, match="'max_token' is unknown; did you mean 'max_tokens'"):
        SamplingParams(max_token=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speculation": 5}, "speculation is 5; expected SpeculationOptions"),
        ({"progress": 5}, "progress is 5; expected a function"),
    ],
)
def test_structured_arguments_of_another_type_are_refused(
    values: dict[str, object], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        Engine(**values)  # type: ignore[arg-type]


def test_a_field_without_a_description_is_found() -> None:
    @dataclass
    class Planted:
        described: int = option(1, help="described")
        plain: int = 2

    with pytest.raises(TypeError, match=r"Planted\.plain has no description"):
        check_options(Planted())


@pytest.mark.parametrize(("owner", "name"), DESCRIBED, ids=IDS)
def test_lora_run_has_the_flags_of_the_description(owner: type, name: str) -> None:
    described = options_of(owner)[name]
    found = command_flags(lora_run).get(name)
    if not described.flags:
        assert found is None
        return
    assert found is not None
    assert (*found.opts, *found.secondary_opts) == described.flags
    default = found.get_default(click.Context(lora_run))
    assert (() if default is None and described.many else default) == (
        None if name == "max_adapters" else described.default  # as many as are named
    )


def shared_flags() -> Iterator[tuple[str, str, click.Option]]:
    for name in SHARED:
        module, attribute = {**COMMANDS, **LAB}[name].location.split(":")
        command = getattr(importlib.import_module(module), attribute)
        for field, found in command_flags(command).items():
            if field in options_of(EngineOptions):
                yield name, field, found


def test_other_commands_spell_them_the_same() -> None:
    seen = set()
    for command, field, found in shared_flags():
        assert tuple(found.opts) == options_of(EngineOptions)[field].flags, (command, field)
        seen.add(command)
    assert seen == set(SHARED)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("-c", "0"), {"context": 0}),
        (("--threads", "-1"), {"threads": -1}),
        (("--max-sequences", "0"), {"max_sequences": 0}),
        (("--kernels", "cuda"), {"kernels": "cuda"}),
        (("--kv", "int9"), {"kv": "int9"}),
        (("--adapter-mode", "x"), {"adapter_mode": "x"}),
        (("--boards", "3"), {"boards": 3}),
        (("--device", "emu:u28"), {"devices": ["emu:u28"]}),
    ],
)
def test_the_command_line_refuses_in_the_words_of_the_engine(
    arguments: tuple[str, ...], values: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        Engine(**values)  # type: ignore[arg-type]
    assert run_command(lora_run, "lora-run", ["-p", "x", *arguments]) == 2
    said = capsys.readouterr().err
    assert said == f"lora-run: error: {in_flags(EngineOptions, str(caught.value))}\n"


def in_flags(owner: type, message: str) -> str:
    """An argument's error as it is on the command line, where nothing is None."""
    name, found, rest = message.partition(" is ")
    if not found or name not in options_of(owner):
        return message
    assert name not in options_of(owner)[name].flags
    return f"{'/'.join(options_of(owner)[name].flags)} is {rest.removesuffix(' or None')}"


@pytest.mark.parametrize(
    ("flag", "text", "field", "value"),
    [
        ("--temp", "hot", "temperature", "hot"),
        ("--temp", "-1", "temperature", -1.0),
        ("--temp", "nan", "temperature", float("nan")),
        ("--top-p", "0", "top_p", 0.0),
        ("--top-k", "-2", "top_k", -2),
        ("-n", "0", "max_tokens", 0),
        ("--seed", str(2**64), "seed", 2**64),
        ("--seed", "9" * 5000, "seed", "9" * 5000),
        ("--repeat-penalty", "0", "repetition_penalty", 0.0),
        ("--stop", "", "stop", ""),
        ("--beams", "0", "beam_width", 0),
        ("--beams", "many", "beam_width", "many"),
        ("--length-penalty", "6", "length_penalty", 6.0),
        ("--early-stopping", "maybe", "early_stopping", "maybe"),
    ],
)
def test_the_command_line_refuses_in_the_words_of_the_parameters(
    flag: str, text: str, field: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        made = BeamSearchParams if field in BEAM_FIELDS else SamplingParams
        made(**{field: value})  # type: ignore[arg-type]
    assert run_command(lora_run, "lora-run", ["-p", "x", flag, text]) == 2
    said = capsys.readouterr().err
    assert said == f"lora-run: error: {in_flags(BeamSearchParams, str(caught.value))}\n"
    assert flag in said and "or None" not in said and len(said) < 500


@pytest.mark.parametrize(
    ("described", "good", "bad"),
    [
        (Option("x", "int", 1, "h", low=1, high=4), [1, 4], [0, 5, 1.0, True, "1", None]),
        (Option("x", "int | None", None, "h"), [None, -9], [0.5, "1"]),
        (Option("x", "float", 1.0, "h", low=0, high=1, above=True), [0.5, 1], [0, 1.1, "a"]),
        (Option("x", "bool", False, "h"), [True], [1, None, "yes"]),
        (Option("x", "bool | str", False, "h", choices=("a",)), [True, "a"], [1, None, "true", 0]),
        (Option("x", "str", "a", "h", choices=("a", "b")), ["b"], ["c", None, 3, True]),
        (Option("x", "Sequence[str]", (), "h"), [["a"], ()], ["a", [1], None, 5]),
        (Option("x", "Sequence[int]", (), "h"), [[1], ()], ["1", ["a"], [True], 5]),
        (Option("x", "str | Path | None", None, "h"), ["a", Path("b"), None], [5, b"a", ["a"]]),
    ],
)
def test_what_a_description_takes(described: Option, good: list[object], bad: list[object]) -> None:
    for value in good:
        described.check(value)
    for value in bad:
        with pytest.raises(RequestError, match=r"^x is .*; expected ") as caught:
            described.check(value)
        assert len(str(caught.value)) < 200


def test_the_docs_have_the_tables_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run python -m tools.option_tables"
    assert with_tables(page.replace("| `context` |", "| `contxt` |")) == page
    with pytest.raises(ValueError, match="0 tables found"):
        with_tables(re.sub(r"<!-- end of EngineOptions -->", "", page))
    for owner in OWNERS:
        rows = markdown_table(owner).splitlines()[2:]
        assert [row.split("`")[1] for row in rows] == list(options_of(owner))


def test_a_changed_option_keeps_its_device_names() -> None:
    options = EngineOptions(devices=["emu:u280", "emu:u280"])
    assert (options.board_count, options.board_kind) == (2, "u280")
    assert replace(options, hidden_layers=[1]).devices == ("emu:u280", "emu:u280")


@pytest.mark.slow
def test_type_checkers_see_the_arguments(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    lines = [
        "from lora_sdk import Engine, SamplingParams",
        'Engine("x", boards=4, devices=["a"], kv="int8").close()',
        'Engine(boards="four")',
        "Engine(bords=4)",
        "SamplingParams(temperature=0.5, stop=['x'], logit_bias={3: 1.0})",
        'SamplingParams(top_k="x")',
    ]
    (tmp_path / "use.py").write_text("\n".join(lines))
    root = Path(__file__).resolve().parents[2]
    said = api.run(["--config-file", str(root / "pyproject.toml"), str(tmp_path / "use.py")])[0]
    assert re.findall(r"use\.py:(\d+): error", said) == ["3", "4", "6"], said
