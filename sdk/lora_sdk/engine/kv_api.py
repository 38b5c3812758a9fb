"""K and V of sequences in and out as plain arrays (docs/prefill.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lora_host.errors import RequestError
from lora_sdk.engine.turns import FairLock
from lora_sdk.kv.key_columns import board_columns, file_columns
from lora_sdk.kv.kv_arrays import KvArrays, check_arrays, static_scales
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.kv.pages import RETURNED
from lora_sdk.text.tokenizer import check_token_ids

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.step.stepper import Stepper


class KvApi:
    """Export and import of one engine's sequences. Thread-safe."""

    def __init__(
        self,
        lock: FairLock,
        cache: KvCache,
        stepper: Stepper,
        adapters: AdapterSlots,
        opened: OpenedModel,
    ) -> None:
        self._lock = lock
        self._cache = cache
        self._stepper = stepper
        self._adapters = adapters
        self._opened = opened
        self._transfer = KvTransfer(opened)

    def export_kv(self, sequence: int) -> KvArrays:
        """K and V of a sequence's committed positions, K in the checkpoint's column order.
        RequestError if the sequence is not open, or has given back pages that no row sees any
        more; errors of the boards pass through."""
        self._check_attention()
        with self._lock:
            kv = self._stepper.tried(lambda: self._read(sequence))
        if kv.k_scales is None and kv.kind != "fp16":
            k_scales, v_scales = static_scales(self._opened.runner.attention_scales)
            kv = replace(kv, k_scales=k_scales, v_scales=v_scales)
        return kv.with_columns(self._board_columns)

    def import_kv(self, tokens: Sequence[int], kv: KvArrays, adapter: str | None = None) -> int:
        """A new sequence whose committed positions are `tokens` with `kv`, as `export_kv` gives it.
        Later rows use `adapter`. Its pages serve no other sequence, except its forks.

        RequestError: wrong tokens, shapes, types or scales, values that are not finite, no room.
        AdapterError as for `open_sequence`. Errors of the boards leave no page held."""
        tokens = check_token_ids(tokens, self._opened.config.vocabulary)
        if not tokens:
            raise RequestError("no tokens to import; expected at least one")
        self._check_attention()
        config = self._opened.config
        check_arrays(kv, config, len(tokens), self._opened.runner.attention_scales)
        own = _copied(kv).with_columns(self._file_columns)
        with self._lock:
            sequence = self._cache.open()
            try:
                if adapter is not None:
                    self._adapters.attach(sequence, adapter)
                self._stepper.tried(lambda: self._place(sequence, own))
                self._cache.begin(sequence, tokens, own)
            except BaseException:
                if self._cache.is_open(sequence):
                    self._cache.close(sequence)
                raise
        return sequence

    def _check_attention(self) -> None:
        """RequestError: layers that keep something else than K and V."""
        config = self._opened.config
        if config.recurrent is not None:
            raise RequestError(
                f"{config.architecture}: K and V cannot be exported or imported, since some layers"
                " keep a state in their place; expected a model with attention in every layer"
            )

    def _read(self, sequence: int) -> KvArrays:
        self._stepper.compute(sequence)
        self._stepper.flush()  # commits wait for the next step's header
        pages = self._cache.pages(sequence)
        if RETURNED in pages:
            raise RequestError(
                f"sequence {sequence} has given back its first pages, which no layer's window"
                " reaches: its K and V are incomplete; export it while it is shorter"
            )
        return self._transfer.read(pages, self._cache.length(sequence))

    def _place(self, sequence: int, kv: KvArrays) -> None:
        if self._cache.leaving and self._cache.lacking(sequence, kv.positions):
            self._stepper.flush()  # makes pages that were just released free
        self._cache.grow(sequence, kv.positions)
        self._transfer.place(self._cache.pages(sequence), kv)

    @cached_property
    def _file_columns(self) -> npt.NDArray[np.intp]:
        return file_columns(self._opened.config)

    @cached_property
    def _board_columns(self) -> npt.NDArray[np.intp]:
        return board_columns(self._opened.config)


def _copied(kv: KvArrays) -> KvArrays:
    """The caller may change its arrays."""
    return replace(
        kv,
        k=kv.k.copy(),
        v=kv.v.copy(),
        k_scales=None if kv.k_scales is None else kv.k_scales.copy(),
        v_scales=None if kv.v_scales is None else kv.v_scales.copy(),
    )
