"""Loads damaged weights again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_host.errors import TransportError
from lora_host.placing import Range
from lora_sdk.plan.addresses import tensors_at
from lora_sdk.recovery.recovery import Recovered, Recovery
from lora_sdk.recovery.scrubber import Adapters, Scrubber

if TYPE_CHECKING:
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.step.stepper import Stepper

SHOWN = 4  # tensors in a message


@dataclass(frozen=True)
class Damage:
    """Weights that differed from what the host had loaded. `places`: board, bank and tensors of
    each, in words. `since`: the stepper's progress when all of them were last right."""

    places: tuple[str, ...]
    bytes: int
    since: int

    def __str__(self) -> str:
        return f"weights changed: {'; '.join(self.places)}"

    def error(self, what: str) -> TransportError:
        """The error of a request; `what` happened to it."""
        return TransportError(f"{self}; {what}")


class WeightRepair:
    """Of one opened model."""

    def __init__(
        self,
        opened: OpenedModel,
        cache: KvCache,
        stepper: Stepper,
        recovery: Recovery,
        scrubber: Scrubber,
        adapters: Adapters = dict,
        rewrite: Callable[[], None] = lambda: None,
    ) -> None:
        """`rewrite` writes the adapters again."""
        self._opened, self._cache, self._stepper = opened, cache, stepper
        self.recovery, self._scrubber = recovery, scrubber
        self._adapters, self._rewrite = adapters, rewrite

    def run(self, forget: Callable[[int], None] = lambda since: None) -> Damage | None:
        """Load again what differs now, and give up what the boards hold of the sequences. None:
        nothing differs. `forget` receives Damage.since before, and closes sequences that shall not
        be computed again. LoraError: what was loaded still differs, or the boards failed."""
        began = time.monotonic()
        weights = self._opened.runner.weights
        parts = weights.damaged()
        slots = {
            name: [one for one in found if one.bytes and self._differs(one)]
            for name, found in self._adapters().items()
        }
        wrong = [*parts, *(one for found in slots.values() for one in found)]
        if not wrong:
            self._scrubber.proved()
            return None
        self._scrubber.damaged += 1
        before = [self._bytes_of(one) for one in wrong]
        since = self._scrubber.last_good(wrong)
        forget(since)
        weights.repair(Counter())
        if len(wrong) > len(parts):
            self._rewrite()
            self._check_adapters()
        names = {id(one): name for name, found in slots.items() for one in found}
        places = tuple(
            self._place(one, old, names.get(id(one)))
            for one, old in zip(wrong, before, strict=True)
        )
        size = sum(one.bytes for one in wrong)
        damage = Damage(places, size, since)
        self.forget_pages()
        rows = self._cache.lose()
        self._scrubber.proved()
        total = sum(board.placed_bytes for board in self._opened.plan.boards)
        seconds = time.monotonic() - began
        count = self._opened.plan.size
        self.recovery.note(Recovered(str(damage), (), count, size, total, rows, seconds))
        return damage

    def forget_pages(self) -> None:
        """The host keeps no K and V that damaged weights may have computed."""
        self._cache.forget_host_pages()

    def taken_doubt(self) -> str:
        """See Recovery.doubt; "" from now on."""
        doubt, self.recovery.doubt = self.recovery.doubt, ""
        return doubt

    def _check_adapters(self) -> None:
        for name, found in self._adapters().items():
            for one in found:
                if one.bytes and self._differs(one):
                    raise TransportError(
                        f"board {one.board} bank {self._opened.plan.board.bank_name(one.bank)}: "
                        f"adapter {name!r} at {one.offset:#x} was written again and is damaged "
                        "still; check the board's memory"
                    )

    def _differs(self, one: Range) -> bool:
        return self._opened.cluster.checksum(one.board, one.bank, one.offset, one.bytes) != one.crc

    def _bytes_of(self, one: Range) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        found = np.empty(one.bytes, np.uint8)
        self._opened.cluster.read_into(one.board, one.bank, one.offset, found)
        return found

    def _place(self, one: Range, before: np.ndarray[tuple[int], np.dtype[np.uint8]],
               adapter: str | None) -> str:  # fmt: skip
        """Board, bank and tensors, by the bytes that loading has changed back."""
        changed = np.flatnonzero(before != self._bytes_of(one)) + one.offset
        bank = self._opened.plan.board.bank_name(one.bank)
        names = [f"adapter {adapter!r}"] if adapter is not None else self._tensors(one, changed)
        at = int(changed[0]) if changed.size else one.offset
        count = f"{changed.size} byte{'s' * (changed.size != 1)}"
        return f"board {one.board} bank {bank}: {count} of {_listed(names)}, first at {at:#x}"

    def _tensors(self, one: Range, changed: Iterable[int]) -> list[str]:
        plan = next(board for board in self._opened.plan.boards if board.board == one.board)
        lines = dict.fromkeys(int(at) // abi.LINE_BYTES * abi.LINE_BYTES for at in changed)
        found = [name for at in lines for name in tensors_at(plan, one.bank, at)]
        return list(dict.fromkeys(found))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "padding") + more
