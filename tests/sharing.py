"""A generator on scripted boards that keeps prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.engine.generator import Generator
from lora_sdk.engine.kv_source import PrefixSource
from lora_sdk.engine.requests import Request
from tests.scripted import VOCABULARY, Bench


class Sharing(Bench):
    """A bench whose generator keeps prefixes. `digests`: those of adapters, by name."""

    max_tokens = 5

    def __init__(self, row_limit: int = 64, loop: bool = False, **sizes: int) -> None:
        super().__init__(**sizes)
        self.digests = {"a": b"first weights", "b": b"other weights"}
        self.source = PrefixSource(self.cache, "fp16", lambda name: self.digests[name])
        self.generator = Generator(
            self.stepper, self.cache, row_limit, self.loop if loop else None, source=self.source
        )

    def run(self, tokens: Sequence[int], **fields: object) -> Request:
        request = self.submit(tokens, **fields)
        self.finish()
        return request

    @property
    def rows(self) -> int:
        return sum(len(rows) for rows in self.runner.steps)

    def check_settled(self) -> None:
        """Every page is free or cached."""
        self.stepper.flush()
        use = self.cache.use(self.source.counts, 0)
        assert use.held == 0 and use.cached + use.free == use.total
        assert self.cache.free_pages == self.cache.total_pages


def text(count: int, seed: int = 1) -> list[int]:
    return [(seed * 7919 + i * i * 31 + i) % VOCABULARY for i in range(count)]
