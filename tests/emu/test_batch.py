"""lora-run --batch: every line has an entry, its result or an error of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import LoraError, RequestError
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run
from tests.variants import variant, write_checkpoint

BAD_LINES = {
    "{": "the line is not JSON",
    "[1]": "the line holds a list",
    '{"prompt": "a", "temprature": 1}': "parameter 'temprature' is unknown; did you mean",
    '{"prompt": "a", "tokens": [1]}': "expected one of prompt, tokens, messages",
    '{"tokens": "a"}': "tokens is 'a'; expected a list",
    '{"tokens": []}': "the prompt is empty",
    '{"prompt": "a", "temperature": -1}': "temperature is -1; expected",
    '{"messages": [{"role": "user", "content": "a"}]}': "no chat template",
    '{"prompt": "a", "adapter": "no"}': "adapter 'no' is not loaded",
    json.dumps({"tokens": [5] * 400}): "400 tokens, 16 more than the context of 384",
    '{"tokens": [5, 99999]}': "token 1 of the prompt is 99999",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("batch") / "model")


def batch(folder: Path, lines: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code, entries on stdout, stderr of a batch of these lines."""
    file = folder.parent / "lines.jsonl"
    file.write_text("\n".join(lines))
    code = run_command(
        lora_run, "lora-run", ["--model", str(folder), "--batch", str(file), "-n", "3", "-q"]
    )
    said = capsys.readouterr()
    return code, [json.loads(line) for line in said.out.splitlines()], said.err


def test_bad_lines_have_an_error_each_and_the_others_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['"first"', *BAD_LINES, "", '"last"']
    code, entries, err = batch(folder, lines, capsys)
    assert code == 1 and err == (
        f"lora-run: error: 11 of 13 lines of {folder.parent / 'lines.jsonl'} failed; the first is "
        f"line 2: {entries[1]['error']}\n"
    )
    assert [entry["index"] for entry in entries] == list(range(13))
    assert [entry["line"] for entry in entries] == [*range(1, 13), 14]
    for entry, part in zip(entries[1:-1], BAD_LINES.values(), strict=True):
        assert part in entry["error"] and set(entry) == {"index", "line", "error"}
    with Engine(folder) as engine:
        for entry, prompt in ((entries[0], "first"), (entries[-1], "last")):
            alone = engine.generate(prompt, max_tokens=3)
            assert isinstance(alone, Result)
            assert entry["outputs"][0]["token_ids"] == list(alone.token_ids)


def test_a_batch_without_a_good_line_loads_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lora_sdk.opening.opening.open_model", lambda _: pytest.fail("opened"))
    code, entries, err = batch(folder, ["[1]"], capsys)
    assert code == 1 and len(entries) == 1 and "1 of 1 lines" in err
    assert batch(folder, [""], capsys)[::2] == (
        2, f"lora-run: error: batch file {folder.parent / 'lines.jsonl'} is empty; expected JSON "
        "lines\n",
    )  # fmt: skip


def test_errors_of_several_prompts_are_reported_and_the_others_go_on(folder: Path) -> None:
    failed: dict[int, LoraError] = {}
    got: dict[int, Result] = {}

    def fail(engine: Engine, after: int) -> None:
        stepper = engine._stepper
        steps, real = 0, stepper.run

        def step(*args: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > after:  # as a board that does not answer
                raise LoraError("the board is gone")
            return real(*args, **more)

        stepper.run = step  # type: ignore[method-assign]

    with Engine(folder) as engine:
        params = [SamplingParams(max_tokens=count) for count in (2, 9, 9)]
        with pytest.raises(RequestError, match="on_error takes several"):
            engine.generate("a", on_error=failed.__setitem__)
        with pytest.raises(RequestError, match="prompt 1: token 0"):
            engine.generate(["a", [99999], "b"], params)
        results = engine.generate(["a", [99999], "b"], params, on_error=failed.__setitem__)
        assert list(failed) == [1] and isinstance(results, list) and len(results) == 2
        fail(engine, 3)
        failed.clear()
        results = engine.generate(
            ["a", "b", "c"], params, on_result=got.__setitem__, on_error=failed.__setitem__
        )
        assert list(got) == [0] and sorted(failed) == [1, 2]
        assert results == [got[0]] and "the board is gone" in str(failed[1])


def test_an_on_error_that_raises_ends_the_batch_with_its_error(folder: Path) -> None:
    def refuse(index: int, error: LoraError) -> None:
        raise BrokenPipeError("closed")

    with Engine(folder) as engine:
        with pytest.raises(BrokenPipeError):
            engine.generate(["a", [99999]], on_error=refuse)
        assert engine.generate("a", max_tokens=1)
