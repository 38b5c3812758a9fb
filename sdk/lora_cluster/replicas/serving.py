"""Replicas behind a server: their boards and counts together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lora_host.errors import LoraError
from lora_sdk.serve.backend import Backend
from lora_sdk.serve.board_metrics import BoardReading, board_rows

if TYPE_CHECKING:
    from lora_cluster.replicas.pool import ReplicaFleet
    from lora_cluster.replicas.replica import Replica
    from lora_sdk.opening.weight_notices import WeightNotices

Counts = TypeVar("Counts")


class ReplicaBackend(Backend):
    """See Backend. Boards are numbered through, in the order of the replicas; those of a replica
    that was lost count with what they told last."""

    def __init__(self, fleet: ReplicaFleet, notices: WeightNotices) -> None:
        """`notices`: of all replicas."""
        self.engine = fleet
        self.capacity = sum(one.opened.requests for one in fleet.replicas)
        self._fleet = fleet
        self._notices = notices
        self._readings: dict[str, BoardReading] = {}

    @property
    def weight_notices(self) -> WeightNotices:
        """See Backend."""
        return self._notices

    def read(self) -> BoardReading:
        """See Backend. LoraError if no replica has told anything yet."""
        for one in self._fleet.replicas:
            with suppress(LoraError):
                self._readings[one.name] = one.calls.reading()
        known = [(one, self._readings.get(one.name)) for one in self._fleet.replicas]
        found = [_moved(reading, self._first(one)) for one, reading in known if reading is not None]
        if not found:
            raise LoraError("no replica tells of its boards")
        return summed(found)

    def board_rows(self, reading: BoardReading | None) -> Iterator[dict[str, object]]:
        """See Backend. A row names its replica and node too."""
        for one in self._fleet.replicas:
            opened, own = one.opened, self._readings.get(one.name)
            state = "running" if one.lost is None else f"lost: {one.lost}"
            more = {"replica": one.name, "node": opened.node, "state": state}
            for row in board_rows(opened.plan, opened.boards, own, self._first(one)):
                yield {**row, **more}

    def is_end(self, error: LoraError) -> bool:
        """Whether no replica runs or is started again."""
        return self._fleet.lost is not None

    def _first(self, replica: Replica) -> int:
        before = self._fleet.replicas[: self._fleet.replicas.index(replica)]
        return sum(one.opened.plan.size for one in before)


def _moved(reading: BoardReading, first: int) -> BoardReading:
    return replace(reading, links=tuple(link.moved(first) for link in reading.links))


def summed(counts: Sequence[Counts]) -> Counts:
    """Dataclasses of counts as one: numbers are added, tuples joined; None where one has none."""
    first: Any = counts[0]
    values: dict[str, Any] = {}
    for field in fields(first):
        each = [getattr(one, field.name) for one in counts]
        if any(value is None for value in each):
            values[field.name] = None
        elif is_dataclass(each[0]):
            values[field.name] = summed(each)
        elif isinstance(each[0], tuple):
            values[field.name] = sum(each, ())
        else:
            values[field.name] = sum(each)
    found: Counts = type(first)(**values)
    return found
