"""Quantized folders on boards: what `lora lab synth` writes loads, runs and equals the oracle on
what the checkpoint reads; refusals are one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_host.vrtd_mock.process import MockServer
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, SamplingParams
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.quant.recipe import Recipe
from tests.commands import LORA, command, lora_run, one_line_error
from tests.drive import Driver, open_runner
from tests.quantized import oracle_of
from tests.unit.test_synth import TINY

RECIPES = {
    "w8a8": Recipe("w8a8", kv="int8"),
    "w4a8": Recipe("w4a8", group=32, kv="int8-heads"),
    "w4a16": Recipe("w4a16", group=32, head="fp16", kv="fp16", symmetric=True),
}
OVERLAYS = {"w8a8": "lora_q_u280", "w4a8": "lora_w4a8_u280", "w4a16": "lora_f_u280"}
TOKENS = [(7 * i * i + 3 * i) % 300 for i in range(50)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    root = tmp_path_factory.mktemp("folders")

    def write(kind: str, scheme: str) -> Path:
        target = root / f"{kind}-{scheme}"
        if not target.exists():
            config = root / "config.json"
            config.write_text(json.dumps({"model_type": kind, **TINY[kind]}))
            synthesize(config, target, recipe=RECIPES[scheme])
        return target

    return write


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("scheme", RECIPES)
@pytest.mark.parametrize("kind", list(TINY))
def test_boards_equal_the_oracle_on_what_the_files_hold(
    kind: str, scheme: str, boards: int, folder: Callable[[str, str], Path]
) -> None:
    path = folder(kind, scheme)
    with open_runner(path, boards, sequences=1) as runner:
        assert runner.plan.overlay.name == OVERLAYS[scheme]
        got = Driver(runner).feed(0, TOKENS, (33, 1, 7))
    want = oracle_of(Checkpoint.open(path)).logits(TOKENS)
    assert got.tobytes() == want.tobytes()
    assert np.isfinite(want).all() and want.std() > 0


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_forks_copy_blocks_of_every_type(scheme: str, folder: Callable[[str, str], Path]) -> None:
    """Two tiles and a part of one, which is copied: values, and scales by head."""
    path = folder("llama", scheme)
    prompt, tails = TOKENS[:43], ([5, 6], [8, 9])
    with Engine(path, boards=2, max_sequences=3) as engine:
        first = engine.open_sequence()
        engine.prefill(first, prompt)
        second = engine.fork(first)
        found = [
            engine.prefill(number, tail)
            for number, tail in zip((first, second), tails, strict=True)
        ]
    oracle = oracle_of(Checkpoint.open(path))
    for tail, logits in zip(tails, found, strict=True):
        assert logits.tobytes() == oracle.logits([*prompt, *tail])[-1].tobytes()


def test_the_commands_take_them(folder: Callable[[str, str], Path]) -> None:
    path = folder("llama", "w8a8")
    ran = lora_run("--model", path, "--boards", 2, "-p", "ab", "-n", 5, "--stats")
    assert ran.returncode == 0, ran.stderr
    assert "modelled: lora_q_u280 on 2 x u280" in ran.stderr.decode()
    by_head = lora_run("--model", path, "-p", "ab", "-n", 5, "--kv", "int8-heads", "--json")
    assert by_head.returncode == 0, by_head.stderr
    planned = json.loads(command(LORA, "plan", "--model", path, "--json").stdout)
    assert planned["overlay"] == "lora_q_u280"
    assert planned["weight_bytes"] < Checkpoint.open(folder("llama", "w4a16")).bytes * 3


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_boards_behind_slash_give_the_same_tokens(
    scheme: str,
    folder: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the V80's overlay and container of that precision, INT8 on the links."""
    greedy, path = SamplingParams(max_tokens=20, ignore_eos=True), folder("llama", scheme)
    with MockServer(2) as running:
        monkeypatch.setenv("LORA_VRTD_SOCKET", str(running.socket))
        monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path))
        with Engine(path, devices=running.uris) as engine:
            assert engine.plan.overlay.name == OVERLAYS[scheme].replace("u280", "v80")
            found = engine.generate("ab", greedy)
    with Engine(path) as engine:
        assert found.token_ids == engine.generate("ab", greedy).token_ids


def test_refusals_name_what_was_asked(folder: Callable[[str, str], Path]) -> None:
    path = folder("llama", "w8a8")
    one_line_error(
        lora_run("--model", path, "-p", "a", "--overlay", "lora_f_u280"),
        "layer.0.qkv is int8, which overlay lora_f_u280 does not compute; take overlay lora_q_u280",
    )
    one_line_error(
        lora_run("--model", folder("llama", "w4a8"), "-p", "a", "--overlay", "lora_q_u280"),
        "w4a8 in groups of 32", "take overlay lora_w4a8_u280",
    )  # fmt: skip
    one_line_error(
        lora_run("--model", folder("llama", "w4a16"), "-p", "a", "--kv", "int8"),
        "q_scale", "fp16 or int8-heads",
    )  # fmt: skip
    with pytest.raises(RequestError, match=r"K is 96, not a multiple of the group of 64"):
        synthesize(path, path.parent / "new", recipe=Recipe("w4a8", group=64))
