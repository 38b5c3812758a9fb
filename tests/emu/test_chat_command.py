"""`lora chat` with messages on a pipe and in a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lora_sdk import Engine, demo_model_path
from lora_sdk.cli.conversation import Conversation
from lora_sdk.sampling import SamplingParams
from tests.commands import LORA, command, one_line_error
from tests.processes import environment
from tests.variants import variant, write_checkpoint

SYSTEM = {"role": "system", "content": "kind"}
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("chat") / "model")
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers differ with what was said before."""
    made = tmp_path_factory.mktemp("trained")
    for file in demo_model_path().iterdir():
        (made / file.name).symlink_to(file)
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


def test_answers_have_the_conversation_before_them_until_a_reset(trained: Path) -> None:
    said = "hello\n/stats\nmore\n/rset\n/reset\nhello\n" + "x" * 2400 + "\nhello\n/help\n"
    done = command(
        LORA, "chat", "--model", trained, "--system", "kind", "-n", 6, input=said.encode()
    )
    assert done.returncode == 1
    with Engine(trained) as engine:
        history = [{"role": "system", "content": "kind"}, {"role": "user", "content": "hello"}]
        first = engine.chat(history, max_tokens=6)
        history.append({"role": "assistant", "content": first.text})
        second = engine.chat([*history, {"role": "user", "content": "more"}], max_tokens=6)
        history.append({"role": "user", "content": "hello"})
        last = engine.chat(history, max_tokens=6)
    answers = [first.text, second.text, first.text, last.text]
    assert len(set(answers)) == 3
    assert done.stdout.decode() == "".join(f"{answer}\n" for answer in answers)
    errors = done.stderr.decode()
    assert f"last answer: {first.prompt_tokens} prompt and 6 new tokens" in errors
    assert f"context: {first.prompt_tokens + 5} of 1024 positions" in errors
    assert "no command '/rset'; did you mean '/reset'?" in errors
    assert "more than the context of 1024; shorten it; /reset forgets" in errors
    assert "Ctrl-D ends" in errors and "Traceback" not in errors


def test_the_oldest_turns_are_dropped_where_the_context_is_full(trained: Path) -> None:
    """Three turns of some 70 positions each, in 256 of which an answer has 30; the system message
    stays."""
    words = ["alpha " * 20, "beta " * 20, "gamma " * 20, "delta " * 20]
    asked = ("--system", "kind", "-n", 30, "-c", 256)
    said = "".join(f"{one}\n" for one in words) + "/stats\n"
    done = command(LORA, "chat", "--model", trained, *asked, input=said.encode())
    assert done.returncode == 0
    dropped = [s for s in done.stderr.decode().splitlines() if "dropped" in s]
    assert dropped and set(dropped) == {
        "the context of 256 positions is full: dropped 1 turn, the oldest"
    }
    with Engine(trained, context=256) as engine:
        messages: list[dict[str, str]] = []
        answers = []
        for one in words:
            messages.append({"role": "user", "content": one.strip()})
            while len(engine.chat_tokens([SYSTEM, *messages])) > 256 - 30:
                del messages[:2]
            answers.append(engine.chat([SYSTEM, *messages], max_tokens=30).text)
            messages.append({"role": "assistant", "content": answers[-1]})
    assert done.stdout.decode() == "".join(f"{answer}\n" for answer in answers)
    assert len(messages) == 8 - 2 * len(dropped)


def test_a_question_that_never_fits_drops_nothing(trained: Path) -> None:
    said = "hello\n" + "x" * 2400 + "\nmore\n"
    done = command(LORA, "chat", "--model", trained, "-n", 6, input=said.encode())
    again = command(LORA, "chat", "--model", trained, "-n", 6, input=b"hello\nmore\n")
    assert done.stdout == again.stdout
    assert b"more than the context" in done.stderr and b"dropped" not in done.stderr
    assert (done.returncode, again.returncode) == (1, 0)


def test_a_base_model_is_refused_before_it_is_loaded(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "model"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json"):  # no weights
        (bare / name).symlink_to(folder / name)
    one_line_error(command(LORA, "chat", "--model", bare, input=b""), "no chat template")


def test_without_jinja_it_is_refused_before_it_is_loaded(folder: Path) -> None:
    missing = f"import sys; sys.modules['jinja2'] = None\n{LORA}"
    done = command(missing, "chat", "--model", folder, input=b"hello\n")
    one_line_error(done, "need the package jinja2", "pip install '.[chat]'")


class Interrupting:
    """Standard output that presses Ctrl-C at its first text."""

    def __init__(self) -> None:
        self.text = ""
        self.pressed = False

    def write(self, text: str) -> None:
        self.text += text
        if self.text and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def test_ctrl_c_ends_the_answer_and_keeps_its_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Interrupting()
    monkeypatch.setattr(sys, "stdout", output)
    asked: list[list[dict[str, str]]] = []
    with Engine(folder) as engine:
        tokens = engine.chat_tokens
        lines = iter(["hello", "more", "/exit"])
        monkeypatch.setattr("builtins.input", lambda _: next(lines))
        monkeypatch.setattr(
            engine, "chat_tokens", lambda messages: asked.append(list(messages)) or tokens(messages)
        )
        conversation = Conversation(engine, SamplingParams(max_tokens=200, ignore_eos=True), None)
        conversation.run()
        part = asked[1][1]["content"]
        whole = engine.chat([{"role": "user", "content": "hello"}], max_tokens=200, ignore_eos=True)
        second = engine.chat(asked[1], max_tokens=200, ignore_eos=True)
    assert part and whole.text.startswith(part) and len(part) < len(whole.text)
    assert output.text == f"{part}\n{second.text}\n"


class Screen:
    """What a terminal shows."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._shown = b""

    def until(self, text: bytes) -> None:
        """Wait until `text` is shown after what was waited for before."""
        while text not in self._shown:
            assert select.select([self._terminal], [], [], 20)[0], self._shown
            self._shown += os.read(self._terminal, 4096)
        self._shown = self._shown.partition(text)[2]


def test_in_a_terminal_ctrl_c_waits_for_the_next_message_and_ctrl_d_ends(folder: Path) -> None:
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LORA, "chat", "--model", str(folder), "-n", "3"],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**environment(), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(side)
    screen = Screen(terminal)
    try:
        screen.until(b"\n> ")
        time.sleep(0.3)  # readline shows its prompt before it waits for signals
        process.send_signal(signal.SIGINT)
        screen.until(b"Ctrl-D ends.")
        screen.until(b"\n> ")
        os.write(terminal, b"hello\n")
        screen.until(b"\n> ")
        os.write(terminal, b"/stats\n")
        screen.until(b"(1): ")
        screen.until(b"\n> ")
        os.write(terminal, b"\x1b[A\n")  # the line before
        screen.until(b"(1): ")
        screen.until(b"\n> ")
        os.write(terminal, b"\x04")
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
