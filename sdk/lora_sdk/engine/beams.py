"""The beams of one request: sequences that are scheduled, reordered and ended together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lora_sdk.engine.requests import Request, Sample
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.sampling.beam_search import Beam, BeamSearch

Logits = NDArray[np.float32]


class Track(Protocol):
    """What a group needs of the scheduler's RunningSequence."""

    sequence: int
    computed: int
    sample: Sample


T = TypeVar("T", bound=Track)


@dataclass(eq=False)  # compared by identity
class BeamGroup(Generic[T]):
    """The running beams of a search. `tracks[i]` holds beam i of `search.beams`. Tracks beyond them
    keep their sequences for later beams and compute nothing.

    The rows of a group may run in several steps. The search advances once all have run, and the
    sequences are reordered before its next rows. A group that was preempted begins again with one
    sequence, of the tokens that its beams have in common."""

    search: BeamSearch
    tracks: list[T]
    reordered: bool = True  # whether the sequences are those of the search's beams
    rebuilding: bool = field(init=False)  # the beams' common tokens are being computed
    _logits: dict[int, Logits] = field(default_factory=dict)  # by beam

    def __post_init__(self) -> None:
        self.rebuilding = bool(self.search.beams[0].tokens)

    def collect(self, track: T, logits: Logits) -> bool:
        """Keep the logits FP32 [V] of a beam whose row has run. Whether it was the last beam."""
        self._logits[self.tracks.index(track)] = np.array(logits)
        return len(self._logits) == len(self.search.beams)

    def advance(self) -> None:
        """Continue the search by one token."""
        rows = [self._logits[beam] for beam in range(len(self._logits))]
        self._logits.clear()
        self.search.advance(rows)

    def moves(self) -> dict[int, int]:
        """The sequence of each beam, and the one that it continues."""
        return {
            track.sequence: self.tracks[beam.parent].sequence
            for track, beam in zip(self._assigned(), self.search.beams, strict=False)
        }

    def reorder(self, cache: KvCache) -> None:
        """Assign the beams to the sequences of those that they continue. RequestError if the pages
        of the copies are not free."""
        cache.reorder(self.moves())
        tracks = self._assigned()
        parents = [self.tracks[beam.parent].computed for beam in self.search.beams]
        for track, computed in zip(tracks, parents, strict=False):
            track.computed = computed
        self.tracks = tracks
        self.assign()

    def _assigned(self) -> list[T]:
        """The tracks in the order of the beams, then those that no beam uses. A beam whose sequence
        another one already continues takes the sequence of a beam that ended."""
        beams, old = self.search.beams, self.tracks
        parents = {beam.parent for beam in beams}
        unused = [track for index, track in enumerate(old) if index not in parents]
        taken: set[int] = set()
        tracks: list[T] = []
        for beam in beams:
            tracks.append(unused.pop(0) if beam.parent in taken else old[beam.parent])
            taken.add(beam.parent)
        return tracks + unused

    def assign(self) -> None:
        """Give each running beam's tokens to its track, whose sequence they continue."""
        for track, beam in zip(self.tracks, self.search.beams, strict=False):
            track.sample.output = list(beam.tokens)
        self.reordered, self.rebuilding = True, False


def beam_samples(search: BeamSearch, of: Sample) -> list[Sample]:
    """A sample for the tokens of each running beam, without a text."""
    width = search.params.beam_width
    return [Sample(of.sampler, None, of.left) for _ in range(width)]


def resume_from(search: BeamSearch, samples: Sequence[Sample]) -> None:
    """Give all samples the tokens that the running beams have in common. Each beam has one more at
    least, whose row gives its logits again."""
    beams = [beam.tokens for beam in search.beams]
    common = 0
    while common < len(beams[0]) - 1 and len({tokens[common] for tokens in beams}) == 1:
        common += 1
    for sample in samples:
        sample.output = list(beams[0][:common])


def take_hypotheses(request: Request, found: Sequence[Beam]) -> None:
    """Give the hypotheses' scores to the request's samples. Masks may leave fewer than n."""
    request.samples = request.samples[: len(found)]
    for sample, beam in zip(request.samples, found, strict=True):
        sample.score = float(beam.score)
