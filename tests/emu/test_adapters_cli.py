"""lora-run --adapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_sdk import Engine, SamplingParams
from tests.adapter_folders import Folder, write_adapter
from tests.commands import LORA, command, lora_run, one_line_error
from tests.variants import variant, write_checkpoint

NAME = "llama_narrow"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    write_checkpoint(variant(NAME), made / "model")
    write_adapter(variant(NAME), Folder("a", rank=12), made / "a")
    write_adapter(variant(NAME), Folder("b", rank=20, blocks=4), made / "b")
    return made


def text_of(root: Path, name: str | None, scale: float = 1.0) -> str:
    params = SamplingParams(max_tokens=9, adapter=name)
    with Engine(root / "model", boards=2, max_adapters=1) as engine:
        if name is not None:
            engine.load_adapter(name, root / name, scale)
        result = engine.generate("once", params)
    assert not isinstance(result, list)
    return result.outputs[0].text


def test_the_adapter_and_its_scale_are_used(root: Path) -> None:
    shared = ("--model", root / "model", "--boards", 2, "-n", 9, "-q", "-p", "once")
    plain, whole, half = text_of(root, None), text_of(root, "a"), text_of(root, "a", 0.5)
    assert len({plain, whole, half}) == 3
    assert lora_run(*shared, "--adapter", f"a={root / 'a'}").stdout.decode() == whole + "\n"
    assert lora_run(*shared, "--adapter", f"a={root / 'a'}:0.5").stdout.decode() == half + "\n"


def test_batch_lines_name_their_adapters(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    lines = [
        {"prompt": "once"},
        {"prompt": "once", "adapter": "b"},
        {"prompt": "once", "adapter": None},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    done = lora_run(
        "--model", root / "model", "--boards", 2, "-n", 9, "--max-adapters", 1, "--batch", file,
        "--adapter", f"a={root / 'a'}", "--adapter", f"b={root / 'b'}",
    )  # fmt: skip
    got = [json.loads(line)["outputs"][0]["text"] for line in done.stdout.decode().splitlines()]
    assert got == [text_of(root, "a"), text_of(root, "b"), text_of(root, None)]


@pytest.mark.parametrize(
    ("value", "part"),
    [("nothing", "NAME=PATH"), ("a=/nowhere", "adapter_config.json"), ("a=/nowhere:x", "scale")],
)
def test_bad_options_get_one_line(root: Path, value: str, part: str) -> None:
    one_line_error(lora_run("--model", root / "model", "-p", "x", "--adapter", value), part)


def test_an_adapter_may_be_why_values_overflow(root: Path) -> None:
    """The advice names it where the row has one: the model alone is fine."""
    shared = ("--model", root / "model", "--boards", 2, "-n", 3, "-q", "-p", "once")
    found = lora_run(*shared, "--adapter", f"a={root / 'a'}:1e30")
    one_line_error(found, "wrote NaN or infinity", "lower the adapter's scale, use none")


def test_a_plan_refuses_what_a_run_would(root: Path) -> None:
    shared = ("--model", root / "model", "--boards", 2, "--adapter", f"a={root / 'a'}")
    assert command(LORA, "plan", *shared).returncode == 0
    for found in (
        command(LORA, "plan", *shared, "--adapter-mode", "bd"),
        lora_run("-p", "once", *shared, "--adapter-mode", "bd"),
    ):
        one_line_error(found, "adapter 'a' is not a BD-LoRA adapter")
