"""Requests as objects, for programs that spread them over several engines of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.engine.kv_source import MigratedKv
from lora_sdk.kv.pages import RETURNED

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.engine.generator import Generator
    from lora_sdk.engine.requests import Request
    from lora_sdk.engine.scheduler import RunningSequence
    from lora_sdk.engine.submission import RequestMaker
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.step.stepper import Stepper


class RequestApi:
    """Makes, starts and takes back requests of one engine. Thread-safe."""

    def __init__(
        self,
        maker: RequestMaker,
        generator: Generator,
        cache: KvCache,
        stepper: Stepper,
        transfer: KvTransfer,
        adapters: AdapterSlots,
    ) -> None:
        self.make = maker.request
        self.start = generator.adopt
        self._generator = generator
        self._cache = cache
        self._stepper = stepper
        self._transfer = transfer
        self._adapters = adapters

    def take(self, request: Request) -> bool:
        """Take a request that decodes off this engine, with its K and V, to be started on another
        one. False if it has ended, or cannot leave now: its prompt is being computed, it has
        several samples or beams. LoraError of the boards: it stays."""
        with self._generator.lock:
            track = self._movable(request)
            if track is None:
                return False
            kv = self._read(track)
            name = request.params.adapter
            weights = None if name is None else self._adapters.digest(name)
            self._generator.give_up(request)
        request.migrated = MigratedKv(kv, weights)
        return True

    def _movable(self, request: Request) -> RunningSequence | None:
        tracks = self._generator.tracks(request)
        if request.ended or request.cancelled or len(tracks) != 1 or len(request.samples) != 1:
            return None
        track = tracks[0]
        waits = track.fetching or track.prefilling or track.left != 1 or track.beams is not None
        return None if waits else track

    def _read(self, track: RunningSequence) -> KvArrays | None:
        """None: a window has passed its first pages, so that they are computed again."""
        pages = self._cache.pages(track.sequence)
        if RETURNED in pages:
            return None
        self._stepper.flush()  # commits wait for the next step's header
        return self._transfer.read(pages, self._cache.length(track.sequence))
