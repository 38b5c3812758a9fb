"""The campaign finds what it looks for, and nothing in a few rounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest

from tests.attack import grow
from tests.attack.aim import Aim, Reply
from tests.attack.bodies import BODIES
from tests.attack.campaign import Campaign, in_turn, names, summary, wrong_answer
from tests.attack.commands import Ended, judged
from tests.attack.watch import MORE_MEGABYTES, Judge

GOOD = json.dumps({"choices": [{"text": "a"}]}).encode()


class Scripted:
    """An Aim whose server answers as told."""

    alive, is_idle, descriptors = True, True, 8

    def __init__(self) -> None:
        self.text, self.health, self.log, self.held = GOOD, 200, "", 100.0

    def post(self, *_: object) -> Reply:
        return Reply(200, self.text)

    def get(self, *_: object) -> Reply:
        return Reply(self.health, b"")

    def megabytes(self, _: str) -> float:
        return self.held

    def forget_peak(self) -> None: ...

    def new_log(self) -> str:
        return self.log


def found(aim: Scripted, **later: object) -> Sequence[str]:
    """By the judge, where the server changes so during an attack."""
    judge = Judge(cast(Aim, aim))
    for name, value in later.items():
        setattr(aim, name, value)
    with judge.watching() as seen:
        pass
    return [*seen.findings, *judge.after(1)[0]]


def test_a_server_that_stays_as_it_was_has_no_finding() -> None:
    assert not found(Scripted())


@pytest.mark.parametrize(("what", "value", "says"), [
    ("text", GOOD.replace(b'"a"', b'"b"'), "the known prompt"), ("health", 503, "/health: 503"),
    ("log", "2026 ERROR lora.serve x\n", "the log"), ("log", "x" * 100_000, "bytes of log"),
    ("held", 101 + MORE_MEGABYTES, "MB more held"), ("alive", False, "ended"),
])  # fmt: skip
def test_what_an_attack_changes_is_a_finding(what: str, value: object, says: str) -> None:
    aim = Scripted()
    aim.process = Ended(-9, "", 0)  # type: ignore[attr-defined]
    object.__setattr__(aim.process, "returncode", -9)  # type: ignore[attr-defined]
    assert any(says in one for one in found(aim, **{what: value}))


@pytest.mark.parametrize(("status", "body", "good"), [
    (200, b"", True), (400, b'{"error":{"message":"a"}}', True), (503, b"", False),
    (400, b'{"error":{"message":"a\\nb"}}', False), (400, b"a", False), (500, b"", False),
    (0, b"", False), (400, b'{"error":{"message":"Traceback"}}', False),
])  # fmt: skip
def test_an_answer(status: int, body: bytes, good: bool) -> None:
    assert (wrong_answer(status, body) == "") == good


def test_how_a_command_ends() -> None:
    refused = Ended(1, "note: a\nlora: error: b\n", 90)
    assert not judged(refused) and not judged(Ended(0, "", 90))
    for wrong in (
        replace(refused, stderr="a\nb\n"), replace(refused, code=-11), replace(refused, code=3),
        replace(refused, stderr="Traceback (most\n"), replace(refused, megabytes=9000),
        replace(refused, why="no end within 9 s"), replace(refused, stderr="\x1b[2J\n"),
    ):  # fmt: skip
        assert judged(wrong), wrong


def test_rounds_are_by_turns_with_sockets_and_files() -> None:
    rounds = [in_turn(names(), number) for number in range(len(names()) * 2)]
    assert [name.startswith("socket:") for name in rounds[:4]] == [True, False, True, False]
    assert set(rounds) == set(names())


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_made_again_from_their_seed(name: str) -> None:
    assert BODIES[name](Random("a")) == BODIES[name](Random("a"))
    assert len({BODIES[name](Random(seed)) for seed in range(8)}) > 2


def test_what_grows() -> None:
    value = {"a": {"b": [1, 2]}, "c": "text"}
    sizes = [len(grow.of_json(Random(seed), json.dumps(value).encode())) for seed in range(40)]
    assert max(sizes) > 1_000_000 and max(sizes) < 2 * grow.LONGEST
    assert grow.of_bytes(Random(1), b"") == b""


@pytest.mark.slow
def test_some_rounds(tmp_path: Path) -> None:
    some = ["socket:smuggled", "socket:deep", "file:config", "command:cluster"]
    log = tmp_path / "log"
    campaign = Campaign(log, tmp_path / "found", 4.0, some)
    campaign.run(600, 0, len(some))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["attack"] for line in lines} == set(some), summary(log)
    assert not campaign.findings, summary(log)
    assert "0 findings" in summary(log) and f"{len(lines)} rounds" in summary(log)
