"""`lora inspect` of a model folder: what it consists of, and why boards refuse it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_host.errors import OverlayError
from lora_host.overlay import load_overlay
from lora_sdk import demo_model_path
from lora_sdk.cli.inspect import kind_of
from tests.commands import LORA, command, one_line_error
from tests.variants import variant, write_checkpoint


def test_a_folder_tells_its_tensors_and_what_boards_make_of_them() -> None:
    done = command(LORA, "inspect", demo_model_path(), "--json")
    assert done.returncode == 0, done.stderr.decode()
    facts = json.loads(done.stdout)
    assert facts["config"]["model_type"] == facts["model_type"] == "llama"
    assert facts["types"] == {"F16": len(facts["tensors"])} and "refused" not in facts
    assert facts["tensors"]["model.norm.weight"] == {"type": "F16", "shape": [256]}


def test_a_folder_that_boards_refuse_is_told_with_the_reason(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    done = command(LORA, "inspect", folder)
    assert done.returncode == 0 and "on the boards   no: " in done.stdout.decode()
    assert "unheard_of" in done.stdout.decode().split("on the boards")[1]


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    one_line_error(command(LORA, "inspect", tmp_path), str(tmp_path), "no weights")
    done = command(LORA, "inspect", demo_model_path(), "--overlay", "lora_f_u280")
    one_line_error(done, "--overlay compares containers only")


def test_an_overlay_is_no_model() -> None:
    overlay = load_overlay("lora_f_u280")
    with pytest.raises(OverlayError, match="is an overlay, no model; its container is") as caught:
        kind_of(overlay.path.parent)
    assert str(overlay.container) in str(caught.value)
