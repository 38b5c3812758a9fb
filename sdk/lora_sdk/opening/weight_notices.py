"""What an engine tells its program of damaged weights that were found and loaded again."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lora_host.naming import counted

_log = logging.getLogger("lora_sdk.recovery")

DRAFT = "draft: "  # before the cause, where only drafts were computed with the weights
KEPT = 64  # notices; all are counted


@dataclass(frozen=True)
class WeightNotice:
    """Damaged weights that were loaded again. `cause`: board, bank and tensors, or the recovery
    that loaded them. `running`: requests that had got tokens from them, and failed. `ended`: those
    that had ended, and may hold wrong tokens. `when`: time.time()."""

    cause: str
    running: int
    ended: int
    when: float = field(default_factory=time.time)

    def __str__(self) -> str:
        told = [f"{self.cause}; loaded again"]
        if self.running:
            told.append(f"{counted(self.running, 'running request')} failed")
        if self.ended:
            told.append(f"{counted(self.ended, 'ended request')} may hold wrong tokens")
        return ", ".join(told)

    @property
    def of_draft(self) -> bool:
        """Whether no token depends on them."""
        return self.cause.startswith(DRAFT)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "cause": self.cause,
            "running": self.running,
            "ended": self.ended,
            "when": round(self.when, 3),
        }


OnNotice = Callable[[WeightNotice], object]
"""Called with each notice, in the thread that runs the steps. It must not call the engine."""


class WeightNotices:
    """Of one engine. `count`: all notices so far, `of_weights`: those of weights on which tokens
    depend; `ended`: all requests that they count as ended; `latest`: the last 64."""

    def __init__(self, on_notice: OnNotice | None = None) -> None:
        self.count = self.of_weights = self.ended = 0
        self._latest: deque[WeightNotice] = deque(maxlen=KEPT)
        self._on_notice = on_notice

    @property
    def latest(self) -> tuple[WeightNotice, ...]:
        """The oldest first."""
        return tuple(self._latest)

    def add(self, notice: WeightNotice) -> None:
        """Keep and tell it. An error of the callback is logged: requests do not depend on it."""
        self._latest.append(notice)
        self.count += 1
        self.of_weights += not notice.of_draft
        self.ended += notice.ended
        if self._on_notice is None:
            return
        try:
            self._on_notice(notice)
        except Exception:
            _log.exception("on_notice has failed for: %s", notice)
