"""What answers of all kinds have in common: who answers, when, and counts of tokens."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Heading:
    """The fields that every answer and every chunk of one begins with. `prefix` of the id and
    `kind` are the protocol's own; `model` is the served name."""

    prefix: str
    kind: str
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def answer(self, choices: list[Any], **more: Any) -> dict[str, Any]:
        """A whole answer or one chunk."""
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }


@dataclass
class Usage:
    """Counts of tokens, over all prompts and samples."""

    prompt: int
    completion: int = 0
    cached: int = 0  # prompt tokens that were not computed
    prefill: str | None = None  # "fast": K and V of a prompt are not the boards' own

    def note(self, cached: int, prefill: str | None) -> None:
        """Of one prompt: tokens that were not computed, and the mode of its worker."""
        self.cached += cached
        self.prefill = prefill or self.prefill

    def as_dict(self) -> dict[str, Any]:
        """As `usage`."""
        details: dict[str, Any] = {"cached_tokens": self.cached}
        if self.prefill is not None:
            details["prefill"] = self.prefill
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": details,
        }


def finish_reason(reason: str | None) -> str | None:
    """The engine's reason in the protocol's words."""
    return "abort" if reason == "cancelled" else reason
