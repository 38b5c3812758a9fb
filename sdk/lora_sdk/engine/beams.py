"""The beams of one request: sequences that are scheduled, reordered and ended together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_sdk.core.kvcache import KvCache
from lora_sdk.engine.requests import Request, Sample
from lora_sdk.sampling.beam_search import Beam, BeamSearch

if TYPE_CHECKING:
    from lora_sdk.engine.scheduler import Track

Logits = NDArray[np.float32]


@dataclass(eq=False)  # compared by identity
class BeamGroup:
    """The running beams of a search. `tracks[i]` holds beam i of `search.beams`. Tracks beyond them
    keep their sequences for later beams and compute nothing.

    The rows of a group may run in several steps. The search advances once all have run. `pages`:
    max pages of each sequence, and one for a copy before the pages of an ended beam are free."""

    search: BeamSearch
    tracks: list[Track]
    pages: int
    _logits: dict[int, Logits] = field(default_factory=dict)  # by beam

    def collect(self, track: Track, logits: Logits) -> bool:
        """Keep the logits FP32 [V] of a beam whose row has run. Whether it was the last beam."""
        self._logits[self.tracks.index(track)] = np.array(logits)
        return len(self._logits) == len(self.search.beams)

    def advance(self) -> None:
        """Continue the search by one token."""
        rows = [self._logits[beam] for beam in range(len(self._logits))]
        self._logits.clear()
        self.search.advance(rows)

    def reorder(self, cache: KvCache) -> None:
        """Assign the beams to the sequences of those that they continue. A beam whose sequence
        another one already continues takes the sequence of a beam that ended. RequestError if the
        pages of the copies are not free."""
        beams, old = self.search.beams, self.tracks
        for track in old:
            cache.reserve(track.sequence, self.pages)
        parents = {beam.parent for beam in beams}
        unused = [track for index, track in enumerate(old) if index not in parents]
        taken: set[int] = set()
        tracks: list[Track] = []
        moved: dict[int, int] = {}
        for beam in beams:
            parent = old[beam.parent]
            track = unused.pop(0) if beam.parent in taken else parent
            moved[track.sequence], track.computed = parent.sequence, parent.computed
            taken.add(beam.parent)
            tracks.append(track)
        cache.reorder(moved)
        self.tracks = tracks + unused
        self.assign()

    def assign(self) -> None:
        """Give each running beam's tokens to its track, which has computed all but the last."""
        for track, beam in zip(self.tracks, self.search.beams, strict=False):
            track.sample.output = list(beam.tokens)


def beam_samples(search: BeamSearch, of: Sample) -> list[Sample]:
    """A sample for the tokens of each running beam, without a text."""
    width = search.params.beam_width
    return [Sample(of.sampler, None, of.left) for _ in range(width)]


def take_hypotheses(request: Request, found: Sequence[Beam]) -> None:
    """Give the hypotheses' scores to the request's samples. Masks may leave fewer than n."""
    request.samples = request.samples[: len(found)]
    for sample, beam in zip(request.samples, found, strict=True):
        sample.score = float(beam.score)
