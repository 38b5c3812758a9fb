"""Adapters in host memory and the slots on the boards into which they are brought on demand: least
recently used out, pinned while a sequence uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_host.errors import AdapterError, LoraError, RequestError
from lora_host.naming import did_you_mean
from lora_host.placing import Range, crc32
from lora_sdk.adapters.image import Image, slot_image
from lora_sdk.adapters.weights import AdapterWeights, content_digest, load_adapter_weights

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_sdk.plan.model_plan import BoardPlan, Plan

HEADER_BYTES = 64


@dataclass(frozen=True)
class AdapterInfo:
    """A loaded adapter. `slot`: its slot on the boards, None if it is only in host memory. `users`:
    sequences that use it now. `bytes`: bytes that loading it into a slot moves, over all boards.
    `blocks`: nblocks of a BD-LoRA adapter, else 1. `note`: a remark on its sharding, or ""."""

    name: str
    path: Path
    rank: int
    blocks: int
    bytes: int
    slot: int | None
    users: int
    note: str


def sharding_note(plan: Plan, name: str, weights: AdapterWeights) -> str:
    """A remark on an adapter's sharding, "" for none. AdapterError if mode "bd" cannot shard it."""
    boards, mode = plan.stage_boards, plan.adapters.mode
    if mode not in ("auto", "bd") or boards == 1:
        return ""
    if weights.blocks == 1:
        note = "is not a BD-LoRA adapter: each board holds all of its factor A"
    elif weights.blocks % boards:
        note = (
            f"nblocks {weights.blocks} is not a multiple of {boards} boards: boards hold every "
            "block that overlaps their columns"
        )
    else:
        return ""
    if mode == "bd":
        raise AdapterError(f"adapter {name!r} {note}; expected a sharded one in mode 'bd'")
    return note


@dataclass
class _Loaded:
    path: Path
    rank: int
    blocks: int
    note: str
    weights: AdapterWeights  # for another number of boards
    images: list[Image]  # by rank of the board
    digest: bytes  # of its weights
    slot: int | None = None
    users: int = 0
    last_use: int = 0  # value of the use counter


class AdapterSlots:
    """All adapters of an engine. Not thread-safe: the engine's lock is held around every call."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._loaded: dict[str, _Loaded] = {}
        self._slots: list[str | None] = [None] * plan.adapters.slots
        self._ranges: dict[int, list[Range]] = {}  # by slot: what the boards hold
        self._held: dict[str, list[Range]] | None = None  # of `ranges`; None: it changed
        self._sequences: dict[int, str] = {}
        self._uses = 0
        self.swaps = 0
        self.swap_bytes = 0
        self.recover: Callable[[LoraError], bool] | None = None
        """See Stepper.recover."""

    # --- loading --------------------------------------------------------------------------------

    def load(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """Read a PEFT folder into host memory; nothing moves to the boards yet. RequestError: the
        boards have been released."""
        if self._cluster.closed:
            raise RequestError(f"adapter {name!r}: the engine is closed; open another one")
        if not self._slots:
            raise AdapterError(
                "the engine was opened without adapter slots; open it with max_adapters of at "
                "least 1"
            )
        if not isinstance(name, str) or not name or not name.isprintable():
            raise AdapterError(f"adapter name {name!r}: expected printable text")
        if name in self._loaded:
            raise AdapterError(f"adapter {name!r} is loaded already; unload it first")
        if not isinstance(path, str | Path):
            raise AdapterError(f"adapter {name!r}: path {path!r}, expected the path of a folder")
        return self.add(name, load_adapter_weights(path, self._plan.config, scale))

    def add(self, name: str, weights: AdapterWeights) -> AdapterInfo:
        """Take an adapter that was read already. AdapterError if its rank or sharding is not
        possible here."""
        if weights.rank > self._plan.adapters.max_rank:
            raise AdapterError(
                f"adapter {name!r}: rank {weights.rank}, the slots take at most "
                f"{self._plan.adapters.max_rank}; open the engine with a larger max_adapter_rank"
            )
        note = sharding_note(self._plan, name, weights)
        images = [slot_image(weights, self._plan, board, name) for board in self._plan.boards]
        self._loaded[name] = _Loaded(
            weights.path,
            weights.rank,
            weights.blocks,
            note,
            weights,
            images,
            content_digest(weights),
        )
        return self.info(name)

    def unload(self, name: str) -> None:
        """Remove an adapter. AdapterError while sequences use it."""
        found = self._get(name)
        if found.users:
            raise AdapterError(
                f"adapter {name!r} is used by {found.users} sequences; wait for them or cancel them"
            )
        if found.slot is not None:
            slot = found.slot
            self._recovering(lambda: self._empty(slot))
        del self._loaded[name]

    def info(self, name: str) -> AdapterInfo:
        """The state of one adapter."""
        found = self._get(name)
        size = sum(image.nbytes for image in found.images)
        return AdapterInfo(
            name, found.path, found.rank, found.blocks, size, found.slot, found.users, found.note
        )

    def infos(self) -> list[AdapterInfo]:
        """All loaded adapters, by name."""
        return [self.info(name) for name in sorted(self._loaded)]

    def digest(self, name: str) -> bytes:
        """SHA-256 of what the adapter changes."""
        return self._get(name).digest

    def weights(self, name: str) -> AdapterWeights:
        """What `add` takes for other boards."""
        return self._get(name).weights

    def check(self, name: str) -> None:
        """AdapterError if no adapter of that name is loaded."""
        self._get(name)

    def _get(self, name: str) -> _Loaded:
        found = self._loaded.get(name)
        if found is None:
            hint = did_you_mean(name, list(self._loaded)) if self._loaded else "none is loaded"
            raise AdapterError(f"adapter {name!r} is not loaded; {hint}")
        return found

    # --- sequences ------------------------------------------------------------------------------

    def has_room(self, name: str | None) -> bool:
        """Whether another sequence can use the adapter now: it is on the boards, or a slot is
        empty or holds an unused adapter."""
        if name is None or name not in self._loaded or self._loaded[name].slot is not None:
            return True
        return self._victim() is not None

    def attach(self, sequence: int, name: str) -> None:
        """Use an adapter for a sequence's rows. It is loaded into a slot if it is in none."""
        found = self._get(name)
        if found.slot is None:
            self._recovering(lambda: self._bring_in(name, found))
        self._pin(sequence, name)

    def closed(self, sequence: int) -> None:
        """The sequence was released."""
        name = self._sequences.pop(sequence, None)
        if name is not None:
            self._loaded[name].users -= 1

    def forked(self, parent: int, child: int) -> None:
        """The child uses its parent's adapter."""
        if parent in self._sequences:
            self._pin(child, self._sequences[parent])

    def forgotten(self) -> None:
        """All sequences were released."""
        for sequence in list(self._sequences):
            self.closed(sequence)

    def slot_of(self, sequence: int) -> int:
        """Slot of the sequence's adapter, -1 for none."""
        name = self._sequences.get(sequence)
        slot = self._loaded[name].slot if name is not None else None
        return -1 if slot is None else slot

    def _pin(self, sequence: int, name: str) -> None:
        found = self._loaded[name]
        self._sequences[sequence] = name
        self._uses += 1
        found.users += 1
        found.last_use = self._uses

    # --- the boards -----------------------------------------------------------------------------

    def restore(self, cluster: Cluster, plan: Plan) -> None:
        """Write every slot again, to boards that have lost them or to others with another plan."""
        if plan is not self._plan:
            for name, found in self._loaded.items():
                found.images = [slot_image(found.weights, plan, one, name) for one in plan.boards]
        self._cluster, self._plan = cluster, plan
        for slot, held in enumerate(self._slots):
            if held is not None:
                self._fill(slot, self._loaded[held])

    def ranges(self) -> dict[str, list[Range]]:
        """What the boards hold of each adapter, with the host's sums: the same object until that
        changes."""
        if self._held is None:
            held = {slot: name for slot, name in enumerate(self._slots) if name is not None}
            self._held = {held[slot]: one for slot, one in self._ranges.items() if slot in held}
        return self._held

    def damaged(self) -> Iterator[tuple[int, str]]:
        """Boards that do not hold what was written, each with the place in words, as they are
        found. LoraError."""
        for name, found in self.ranges().items():
            for one in filter(self._differs, found):
                bank = self._plan.board.bank_name(one.bank)
                yield one.board, f"board {one.board} bank {bank}: adapter {name!r} has changed"

    def _differs(self, one: Range) -> bool:
        if not one.bytes:
            return False
        return self._cluster.checksum(one.board, one.bank, one.offset, one.bytes) != one.crc

    def rewrite(self) -> None:
        """Write every slot again."""
        self.restore(self._cluster, self._plan)

    def _recovering(self, write: Callable[[], None]) -> None:
        """Write to the boards, once more if they fail and can be recovered."""
        try:
            write()
        except LoraError as error:
            if self.recover is None or not self.recover(error):
                raise
            write()

    def _victim(self) -> int | None:
        """The slot to fill: an empty one, else the least recently used one without users."""
        if None in self._slots:
            return self._slots.index(None)
        held = [(self._loaded[name].last_use, slot) for slot, name in enumerate(self._slots) if name
                and not self._loaded[name].users]  # fmt: skip
        return min(held)[1] if held else None

    def _bring_in(self, name: str, found: _Loaded) -> None:
        slot = self._victim()
        if slot is None:
            raise AdapterError(
                f"adapter {name!r}: all {len(self._slots)} slots are in use; release sequences or "
                "open the engine with a larger max_adapters"
            )
        self._empty(slot)
        self._fill(slot, found)
        self._slots[slot], found.slot, self._held = name, slot, None
        self.swaps += 1
        self.swap_bytes += sum(image.nbytes for image in found.images)

    def _fill(self, slot: int, found: _Loaded) -> None:
        """Write the header last, so that a failure leaves no half-written adapter."""
        self._ranges.pop(slot, None)
        images = list(zip(self._plan.boards, found.images, strict=True))
        written = [self._write(board, *run) for board, image in images
                   for run in self._runs(board, slot, image)]  # fmt: skip
        headers = [(board, self._header_at(board, slot), image) for board, image in images]
        written += [self._write(board, *at, image[:HEADER_BYTES]) for board, at, image in headers]
        self._ranges[slot], self._held = written, None

    def _empty(self, slot: int) -> None:
        """Mark the slot empty first, so that a failure later leaves no half-written adapter."""
        name, self._slots[slot], self._held = self._slots[slot], None, None
        self._ranges.pop(slot, None)
        if name is None:
            return
        self._loaded[name].slot = None
        for board in self._plan.boards:
            at = self._header_at(board, slot)
            self._write(board, *at, np.zeros(HEADER_BYTES, np.uint8))

    @staticmethod
    def _header_at(board: BoardPlan, slot: int) -> tuple[int, int]:
        """Bank and byte offset of the slot's header."""
        assert board.adapters is not None
        bank, offset, _, _ = next(board.adapters.runs(slot, 0, HEADER_BYTES))
        return bank, offset

    @staticmethod
    def _runs(board: BoardPlan, slot: int, image: Image) -> Iterator[tuple[int, int, Image]]:
        """(bank, byte offset, bytes) of all but the header; a bank's chunks are contiguous."""
        layout, size = board.adapters, abi.ADAPTER_CHUNK
        assert layout is not None
        chunks = -(-len(image) // size)
        for first in range(min(layout.bank_count, chunks)):
            numbers = range(first, chunks, layout.bank_count)
            parts = [image[n * size : (n + 1) * size] for n in numbers]
            skip = HEADER_BYTES if first == 0 else 0
            start = first * size + skip
            bank, offset, _, _ = next(layout.runs(slot, start, start + 1))
            yield bank, offset, np.concatenate(parts)[skip:]

    def _write(self, board: BoardPlan, bank: int, offset: int, data: Image) -> Range:
        self._cluster.write(board.board, bank, offset, data)
        return Range(board.board, bank, offset, data.nbytes, crc32(data))
