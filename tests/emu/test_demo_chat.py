"""The demo model can be talked to, and an answer that was cut says by what."""

from __future__ import annotations

import json

import pytest

from lora_sdk import Engine, demo_model_path
from tests.commands import LORA, command, lora_run
from tests.processes import ROOT
from tests.served import served
from tools.train_demo.tokenizer import tokenizer_config

QUESTION = "Read a file and return its lines."


def test_the_demo_has_the_template_that_its_training_writes() -> None:
    for folder in (demo_model_path(), ROOT / "models" / "demo_draft"):
        found = json.loads((folder / "tokenizer_config.json").read_text())
        assert found == tokenizer_config(found["model_max_length"])


def test_chat_works_without_a_model_of_ones_own() -> None:
    with Engine() as engine:
        message = {"role": "user", "content": QUESTION}
        answer = engine.chat([message], max_tokens=24)
        assert answer.prompt_token_ids[:1] == (0,) and answer.prompt_token_ids.count(0) == 1
        again = [message, {"role": "assistant", "content": answer.text}, message]
        assert len(engine.chat_tokens(again)) > 2 * answer.prompt_tokens
    assert "def " in answer.text  # code is what it can
    done = command(LORA, "chat", "-n", 24, input=f"{QUESTION}\n".encode())
    assert done.returncode == 0 and done.stdout.decode() == answer.text + "\n"
    assert lora_run("--chat", "-n", 24, "-q", "-p", QUESTION).stdout == done.stdout


def test_chat_requests_of_the_demo_are_answered() -> None:
    with served(lambda progress: Engine(progress=progress)) as server:
        body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8}
        reply = server.post("/v1/chat/completions", body)
        assert reply.status == 200 and reply.body["choices"][0]["message"]["content"].strip()


@pytest.mark.parametrize(
    ("flags", "chat", "run"),
    [
        (("-n", 5), "5 tokens is the most that -n allows", "; cut at 5 tokens (-n)"),
        (("-n", -1, "-c", 32, "--ignore-eos"),
         "the context of 32 positions is full; the next message drops what is oldest",
         "; cut by a full context of 32 positions"),
    ],
)  # fmt: skip
def test_an_answer_says_what_cut_it(flags: tuple[object, ...], chat: str, run: str) -> None:
    talked = [flag for flag in flags if flag != "--ignore-eos"]
    done = command(LORA, "chat", *talked, input=f"{QUESTION}\n/stats\n".encode())
    if "-c" in flags:
        assert "context: 32 of 32 positions" in done.stderr.decode()
    assert f"the answer was cut: {chat}\n" in done.stderr.decode()
    assert lora_run(*flags, "-p", "def f(").stderr.decode().endswith(f"{run}\n")
    ended = lora_run("-n", 40, "-p", "def f(", "--stop", "(").stderr.decode()
    assert "; cut " not in ended
