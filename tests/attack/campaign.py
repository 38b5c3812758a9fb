"""Rounds of attacks, by turns with sockets and with files, and their log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tests.attack import commands
from tests.attack.aim import Aim, aimed
from tests.attack.bodies import BODIES
from tests.attack.watch import Judge
from tests.attack.wire import WIRE
from tests.fuzz.files import FILES
from tests.hostile_cases.case import Stock
from tests.processes import ROOT, environment

REQUESTS, AT_ONCE = 24, 8
TOO_LONG = (4 << 20) + 4096
INPUTS, COMMANDS = 60, 3
CHILD_SECONDS = 900.0  # a target's own limit of an input is far below
STAMP = "%Y-%m-%dT%H:%M:%S"
SOCKET, FILE, COMMAND = "socket", "file", "command"


def names() -> list[str]:
    """Of all attacks."""
    files = [f"{FILE}:{name}" for name in FILES] + [f"{COMMAND}:{name}" for name in commands.KINDS]
    return [f"{SOCKET}:{name}" for name in (*WIRE, *BODIES)] + files


def in_turn(attacks: Sequence[str], number: int) -> str:
    """The attack of a round: with sockets and with files by turns, where there are both."""
    parts = [
        part
        for is_socket in (True, False)
        if (part := [name for name in attacks if name.startswith(SOCKET) == is_socket])
    ]
    part = parts[number % len(parts)]
    return part[number // len(parts) % len(part)]


class Campaign:
    """`share`: of one core, that it and all that it starts take on average at most; rounds wait
    for that. `findings`: all so far."""

    def __init__(self, log: Path | None, found: Path, share: float, attacks: Sequence[str]) -> None:
        self._file = None if log is None else log.open("a", buffering=1)
        self._found, self._share, self._attacks = found.resolve(), share, attacks
        self._found.mkdir(parents=True, exist_ok=True)
        self.findings: list[str] = []
        self._aim: Aim | None = None
        self._judge: Judge | None = None

    def run(self, seconds: float, seed: int, rounds: int | None = None) -> None:
        """Rounds until the time is over, or so many."""
        began, self._used_before = time.monotonic(), self._used()
        self._began, self._started = began, time.strftime(STAMP)
        with tempfile.TemporaryDirectory(prefix="lora-attack-") as folder, ExitStack() as open_now:
            stock = Stock(Path(folder))
            number = seed
            while time.monotonic() - began < seconds and number - seed != rounds:
                self._round(in_turn(self._attacks, number), number, stock, open_now)
                self._rest(began, seconds)
                number += 1

    def _round(self, name: str, number: int, stock: Stock, open_now: ExitStack) -> None:
        kind, _, which = name.partition(":")
        began, used = time.monotonic(), self._used()
        try:
            if kind == SOCKET:
                said = self._socket(which, number, open_now)
            elif kind == FILE:
                said = self._file_target(which, number)
            else:
                ends, found = commands.attack(which, stock, str(number), COMMANDS, self._found)
                said = {"answers": dict(ends), "findings": found}
        except Exception as error:  # of the campaign itself: to be looked at, and no end of it
            said = {"findings": [f"{type(error).__name__}: {error!s:.300}"]}
        self.findings += said["findings"]
        self._write({
            "run": self._started, "elapsed": round(time.monotonic() - self._began, 1),
            "at": time.strftime(STAMP), "attack": name, "seed": number,
            "seconds": round(time.monotonic() - began, 1),
            "processor_seconds": round(self._used() - used, 1), **said,
        })  # fmt: skip

    def _socket(self, which: str, number: int, open_now: ExitStack) -> dict[str, Any]:
        if self._aim is None or not self._aim.alive:
            folder = Path(
                open_now.enter_context(tempfile.TemporaryDirectory(prefix="lora-attack-"))
            )
            self._aim = open_now.enter_context(aimed(folder))
            self._judge = Judge(self._aim)
        aim, judge, random = self._aim, self._judge, Random(f"{which} {number}")
        assert judge is not None
        made = BODIES.get(which)
        requests = [made(random) for _ in range(REQUESTS)] if made else []
        with judge.watching() as seen:
            if which in WIRE:
                answers = WIRE[which](aim, random)
            else:
                answers = _bodies(aim, requests, self._found / f"{which}-{number}")
        findings = [*seen.findings, *_bad(answers)]
        after, figures = judge.after(sum(answers.values()))
        health = sorted(seen.health)
        if health:
            figures["health_ms_p50"] = round(1e3 * health[len(health) // 2], 1)
            figures["health_ms_max"] = round(1e3 * health[-1], 1)
        if findings + after and aim.alive:  # the next round begins with a server of its own
            aim.process.kill()
            aim.process.wait()
        return {"answers": dict(answers), "texts": seen.texts, "health": len(health), **figures,
                "findings": findings + after}  # fmt: skip

    def _file_target(self, which: str, number: int) -> dict[str, Any]:
        words = ["tests.attack.child", which, str(number), str(INPUTS), str(self._found)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", *words], env=environment(), cwd=ROOT, timeout=CHILD_SECONDS,
                capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"findings": [f"{which} {number}: no end within {CHILD_SECONDS:g} s"]}
        if done.returncode:
            text = f"{which} {number}: exit code {done.returncode}: {done.stderr[-300:]!r}"
            return {"findings": [text]}
        said = json.loads(done.stdout.splitlines()[-1])
        return {"answers": {"taken": said["taken"], "refused": said["refused"]},
                "findings": [said["fault"]] if said["fault"] else []}  # fmt: skip

    def _rest(self, began: float, seconds: float) -> None:
        """Until the share holds, or the time is over."""
        while (
            self._used() - self._used_before > self._share * (time.monotonic() - began)
            and time.monotonic() - began < seconds
        ):
            time.sleep(1)

    def _used(self) -> float:
        """Processor seconds of this process and all that it has started."""
        times = os.times()
        mine = times.user + times.system + times.children_user + times.children_system
        return mine + (self._aim.processor_seconds() if self._aim is not None else 0.0)

    def _write(self, line: dict[str, Any]) -> None:
        print(json.dumps(line), file=self._file or sys.stdout, flush=True)


def _bodies(aim: Aim, requests: Sequence[tuple[str, bytes]], kept: Path) -> Counter[str]:
    """Answers; a body too long is cut so that it is just that: of more the server reads for a
    second only, and a client may not see its answer."""

    def ask(request: tuple[str, bytes]) -> str:
        reply = aim.post(request[0], request[1][:TOO_LONG])
        wrong = wrong_answer(reply.status, reply.body)
        if wrong:
            kept.write_bytes(request[0].encode() + b"\n" + request[1])
            return f"finding: {request[0]}: {wrong} ({kept})"
        return str(reply.status)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(pool.map(ask, requests))


def wrong_answer(status: int, body: bytes) -> str:
    """What is wrong with an answer, "" for nothing: an error says what is wrong in one line."""
    if status == 0 or (status >= 500 and status != 503):
        return f"{status} {body[:300]!r}"
    if status < 400:
        return ""
    try:
        text = json.loads(body)["error"]["message"]
        good = isinstance(text, str) and text.isprintable() and 0 < len(text) <= 1000
    except (ValueError, KeyError, TypeError):
        good = False
    return "" if good and b"Traceback" not in body else f"{status} {body[:300]!r}"


def _bad(answers: Counter[str]) -> list[str]:
    """Answers of 5xx; 503 says that there are too many."""
    return [
        f"answered {text}" if text.isdigit() else text
        for text in answers
        if text.startswith("finding") or (text.isdigit() and text[0] == "5" and text != "503")
    ]


def summary(log: Path) -> str:
    """A log in lines: hours, rounds, inputs by kind of attack, and findings."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if not lines:
        return "no rounds"
    runs = {line["run"]: line["elapsed"] for line in lines}  # the last round of each
    hours = sum(runs.values()) / 3600
    taken = sum(line["processor_seconds"] for line in lines) / 3600
    said = [f"{hours:.2f} hours, {len(lines)} rounds, {taken:.2f} processor hours"]
    for kind in (SOCKET, FILE, COMMAND):
        some = [line for line in lines if line["attack"].startswith(f"{kind}:")]
        count = sum(sum(line.get("answers", {}).values()) for line in some)
        said.append(f"{kind}: {len(some)} rounds, {count} inputs")
    sockets = [line for line in lines if "held_mb" in line]
    if sockets:
        said.append(
            f"the good client: {sum(line['health'] for line in sockets)} answers of /health, "
            f"at most {max(line['health_ms_max'] for line in sockets):.0f} ms, "
            f"{sum(line['texts'] for line in sockets)} texts; "
            f"at most {max(line['held_mb'] for line in sockets):.0f} MB more held, "
            f"{max(line['peak_mb'] for line in sockets):.0f} MB at a peak"
        )
    found = [
        f"{line['attack']} {line['seed']}: {one}" for line in lines for one in line["findings"]
    ]
    return "\n".join([*said, f"{len(found)} findings", *found])
