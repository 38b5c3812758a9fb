"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lora_cluster.replicas.prefixes import page_names

if TYPE_CHECKING:
    from lora_cluster.dispatch.place import Place
    from lora_cluster.replicas.replica import Replica
    from lora_sdk.engine.requests import Request

SLACK = 0.25  # of a replica's sequences, that one may have more than the least loaded one


class Router:
    """Least loaded. Among replicas that have at most SLACK more: one that has the adapter on its
    boards, then the one that holds the most of the prompt."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = {id(one): one for one in replicas}

    def choose(self, request: Request, places: Sequence[Place]) -> Place:
        """One of `places`, which have room."""
        params = request.params
        names = page_names(request.tokens, params.adapter, params.cache_salt)
        loads = [_load(place) for place in places]
        most = min(loads) + max(1, round(SLACK * places[0].room))
        best = min(
            (place for place, load in zip(places, loads, strict=True) if load <= most),
            key=lambda place: self._rank(place, params.adapter, names),
        )
        self._replica(best).note(params.adapter, names)
        return best

    def _rank(
        self, place: Place, adapter: str | None, names: Sequence[bytes]
    ) -> tuple[bool, int, int, int]:
        """The lowest is the best one; of equal ones that which has begun the fewest."""
        replica = self._replica(place)
        absent = adapter is not None and not replica.has_on_boards(adapter)
        return absent, -replica.prefixes.longest(names), _load(place), place.begun + place.taken

    def _replica(self, place: Place) -> Replica:
        return self._replicas[id(place.engine)]


def _load(place: Place) -> int:
    """Sequences that run there."""
    return sum(ticket.request.params.sequences for ticket in place.tickets)
