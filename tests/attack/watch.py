"""The well-behaved client beside an attack, and the judge of what the attack left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.attack.aim import GOOD, SECONDS, Aim, within

PROMPT = json.dumps({"prompt": "import os\n", "max_tokens": 16, "temperature": 0}).encode()
EVERY = 0.5  # seconds between two looks
TEXT_EVERY = 4  # looks
MORE_DESCRIPTORS = 8
MORE_MEGABYTES = 200.0  # held after attacks, beyond what the server held before the first
PEAK_MEGABYTES = 400.0  # during one
LOG_BYTES, LOG_BYTES_EACH = 1 << 16, 1024


def text_of(aim: Aim) -> bytes:
    """The known prompt's text. Findings are ValueError."""
    reply = aim.post("/v1/completions", PROMPT, GOOD, "127.0.0.2")
    if reply.status != 200:
        raise ValueError(f"the known prompt: {reply.status} {reply.body[:200]!r}")
    return str(json.loads(reply.body)["choices"][0]["text"]).encode()


@dataclass
class Seen:
    """By the good client during one attack: seconds of each `/health`, texts that were right, and
    what was found."""

    health: list[float] = field(default_factory=list)
    texts: int = 0
    findings: list[str] = field(default_factory=list)


class Judge:
    """Knows the server before the first attack, and compares."""

    def __init__(self, aim: Aim) -> None:
        self._aim = aim
        for _ in range(3):  # what a first use keeps
            self._text = text_of(aim)
        self._descriptors = aim.descriptors
        self._megabytes = aim.megabytes("VmRSS")
        aim.new_log()

    @contextmanager
    def watching(self) -> Iterator[Seen]:
        """The good client looks while this is open."""
        seen, end = Seen(), threading.Event()
        self._aim.forget_peak()
        thread = threading.Thread(target=self._look_until, args=(seen, end))
        thread.start()
        try:
            yield seen
        finally:
            end.set()
            thread.join()

    def _look_until(self, seen: Seen, end: threading.Event) -> None:
        looks = 0
        while not end.is_set() or not looks:
            try:
                self._look(seen, looks % TEXT_EVERY == 0)
            except (OSError, ValueError, KeyError) as error:
                seen.findings.append(f"the good client: {type(error).__name__}: {error}")
            looks += 1
            end.wait(EVERY)

    def _look(self, seen: Seen, with_text: bool) -> None:
        began = time.monotonic()
        status = self._aim.get("/health").status
        seen.health.append(time.monotonic() - began)
        if status != 200:
            raise ValueError(f"/health: {status}")
        if with_text:
            found = text_of(self._aim)
            if found != self._text:
                raise ValueError(f"the known prompt: {found!r}; {self._text!r} expected")
            seen.texts += 1

    def after(self, sent: int) -> tuple[list[str], dict[str, float]]:
        """Findings once the attack is over, and the figures. `sent`: its requests and
        connections."""
        aim, found = self._aim, []
        if not aim.alive:
            return [f"the server ended with {aim.process.returncode}"], {}
        if not within(lambda: aim.is_idle, SECONDS):
            found.append("requests of clients that went away still run or wait")
        limit = self._descriptors + MORE_DESCRIPTORS
        if not within(lambda: aim.descriptors <= limit, SECONDS):
            found.append(f"{aim.descriptors} descriptors; at most {limit} expected")
        held, peak = (aim.megabytes(name) - self._megabytes for name in ("VmRSS", "VmHWM"))
        if held > MORE_MEGABYTES or peak > PEAK_MEGABYTES:
            found.append(f"{held:.0f} MB more held, {peak:.0f} MB at the peak")
        log = aim.new_log()
        if len(log) > LOG_BYTES + LOG_BYTES_EACH * sent:
            found.append(f"{len(log)} bytes of log for {sent} requests")
        for line in log.splitlines():
            if "Traceback" in line or " ERROR " in line or not line.isprintable():
                found.append(f"the log: {line!r:.300}")
                break
        return found, {
            "held_mb": round(held, 1), "peak_mb": round(peak, 1), "log_bytes": len(log),
            "descriptors": aim.descriptors,
        }  # fmt: skip
