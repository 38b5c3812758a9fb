"""The commands in the POSIX locale: text and names beyond ASCII are UTF-8, as elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_sdk import Engine, SamplingParams
from tests.commands import LORA, RUN, command, one_line_error
from tests.variants import variant, write_checkpoint

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
LOCALES = {
    "C": {"LC_ALL": "C"},  # Python reads and writes UTF-8 then
    "ASCII": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("locale") / "mödel")
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(params=LOCALES, autouse=True)
def locale(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in LOCALES[request.param].items():
        monkeypatch.setenv(name, value)
    return str(request.param)


def test_prompts_and_their_continuations(folder: Path, tmp_path: Path) -> None:
    text = "für 中 "
    with Engine(folder) as engine:
        expected = engine.generate(text, SamplingParams(max_tokens=12)).text
    file = tmp_path / "prömpt.txt"
    file.write_text(text, encoding="utf-8")
    for prompt, given in ((["-p", text], None), ([file], None), ([], text.encode())):
        done = command(RUN, "-m", folder, "-n", 12, "--echo", *prompt, input=given)
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode() == text + expected + "\n"
    stop = expected.strip()[-1]  # UTF-8 of several bytes or not: it matches as in any locale
    done = command(RUN, "-m", folder, "-n", 12, "--json", "-p", text, "-r", stop)
    [output] = json.loads(done.stdout)["outputs"]
    assert output["text"] == expected[: expected.index(stop)] and output["stop_reason"] == stop


def test_a_conversation(folder: Path) -> None:
    done = command(
        LORA, "chat", "-m", folder, "--system", "kräftig", "-n", 6, input="hallö\n/ü\n".encode()
    )
    with Engine(folder) as engine:
        history = [{"role": "system", "content": "kräftig"}, {"role": "user", "content": "hallö"}]
        assert done.stdout.decode() == engine.chat(history, max_tokens=6).text + "\n"
    assert done.returncode == 0 and "Traceback" not in done.stderr.decode()


def test_messages_have_names_as_they_are(folder: Path, locale: str, tmp_path: Path) -> None:
    missing = command(RUN, "-m", "nöwhere", "-p", "a")
    one_line_error(missing, "model folder nöwhere does not exist")
    one_line_error(command(LORA, "plan", "-m", tmp_path / "ü"), "ü does not exist")
    one_line_error(command(RUN, "-m", folder, "-p", b"a\xc3"), "-p is not UTF-8: byte 0xc3 at 1")
    one_line_error(command(RUN, "-m", folder, "-p", "a", "-r", b"\xff"), "a byte that is not UTF-8")
    refused = command(LORA, "chat", "-m", folder, "--system", b"\xff")
    one_line_error(refused, "--system is not UTF-8")


def test_a_folder_is_written(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "öut"
    done = command(LORA, "lab", "synth", folder / "config.json", made)
    assert done.returncode == 0, done.stderr
    assert command(RUN, "-m", made, "-n", 1, "-p", "a").returncode == 0
