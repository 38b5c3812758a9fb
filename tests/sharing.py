"""A generator on scripted boards that keeps prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.engine.generator import Generator
from lora_sdk.engine.prefix_source import PrefixSource
from lora_sdk.engine.requests import Request, Sample
from lora_sdk.sampling import Sampler, SamplingParams
from tests.scripted import VOCABULARY, Bench


class Sharing(Bench):
    """A bench whose generator keeps prefixes. `digests`: those of adapters, by name."""

    def __init__(self, row_limit: int = 64, loop: bool = False, **sizes: int) -> None:
        super().__init__(**sizes)
        self.digests = {"a": b"first weights", "b": b"other weights"}
        self.source = PrefixSource(self.cache, "fp16", lambda name: self.digests[name])
        self.generator = Generator(
            self.stepper, self.cache, row_limit, self.loop if loop else None, source=self.source
        )

    def submit(self, tokens: Sequence[int], **fields: object) -> Request:
        params = SamplingParams(**{"max_tokens": 5, "seed": 7, **fields})  # type: ignore[arg-type]
        room = self.cache.context - len(tokens) + 1
        samples = [
            Sample(Sampler(params, VOCABULARY, 7, i), None, min(params.max_tokens or room, room))
            for i in range(params.n)
        ]
        request = Request(None, list(tokens), params, 7, samples)
        self.generator.submit(request)
        return request

    def finish(self, one_step: bool = True) -> None:
        while self.generator.advance(one_step):
            pass

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
