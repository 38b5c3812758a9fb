"""The dispatcher forgets no request, whatever other threads do while it looks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lora_cluster.dispatch.dispatcher import Dispatcher
from lora_cluster.dispatch.place import Ticket
from lora_cluster.dispatch.policy import Policy


class EndsMeanwhile:
    """A request that another thread ends once the dispatcher has asked whether it has ended."""

    def __init__(self) -> None:
        self.params = SimpleNamespace(adapter=None)
        self.cancelled = False
        self.asked = 0

    @property
    def ended(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_request_that_ends_while_others_are_looked_at_is_told() -> None:
    told: list[str] = []
    request: Any = EndsMeanwhile()
    dispatcher = Dispatcher([], [], Policy())
    try:
        dispatcher._tickets.append(Ticket(request, 1, lambda: told.append("ended")))
        for _ in range(2):
            dispatcher._sweep()
        assert told == ["ended"] and not dispatcher._tickets
    finally:
        dispatcher.refuse()
        dispatcher.close()
