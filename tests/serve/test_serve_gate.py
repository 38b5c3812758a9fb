"""The queue before the engine."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.gate import Gate, Ticket


def granted(tickets: list[Ticket]) -> list[bool]:
    return [ticket.granted is not None for ticket in tickets]


def test_places_are_granted_by_turns_between_clients() -> None:
    async def main() -> None:
        gate = Gate(2, 100)
        many = gate.enter("many", [1] * 6)
        few = gate.enter("few", [1])
        assert granted(many) == [True, True, False, False, False, False]
        assert (gate.running, gate.waiting) == (2, 5)
        many[0].release()
        assert granted(many)[2] and not granted(few)[0]
        many[1].release()  # the other client's turn
        assert granted(few) == [True] and not granted(many)[3]
        for ticket in [*many, *few]:
            ticket.release()
        assert (gate.running, gate.waiting) == (0, 0)

    asyncio.run(main())


def test_a_full_queue_is_429_and_takes_nothing() -> None:
    async def main() -> None:
        gate = Gate(2, 2)
        first = gate.enter("a", [1, 1, 1])
        with pytest.raises(ApiError) as caught:
            gate.enter("b", [1, 1])
        assert caught.value.status == 429 and 1 <= int(caught.value.headers()["retry-after"]) <= 60
        assert gate.waiting == 1
        second = gate.enter("b", [1])
        with pytest.raises(ApiError) as caught:
            gate.enter("c", [1, 1, 1, 1, 1])
        assert caught.value.status == 400
        for ticket in [*second, *first]:
            ticket.release()
        assert (gate.running, gate.waiting) == (0, 0)

    asyncio.run(main())


def test_a_large_request_is_not_passed_over_for_ever() -> None:
    async def main() -> None:
        gate = Gate(4, 100)
        small = gate.enter("a", [1, 1, 1])
        large = gate.enter("b", [9])  # counts as all that runs at once
        later = gate.enter("c", [1])
        assert granted(large) == granted(later) == [False]
        for ticket in small:
            ticket.release()
        assert granted(large) == [True] and granted(later) == [False]
        large[0].release()
        large[0].release()
        assert granted(later) == [True] and gate.running == 1

    asyncio.run(main())


def refused(tickets: list[Ticket]) -> list[bool]:
    return [one._future.done() and one._future.exception() is not None for one in tickets]


def test_a_full_queue_refuses_those_who_have_most_in_it_first() -> None:
    async def main() -> None:
        gate = Gate(1, 6)
        running = gate.enter("many", [1])
        many = [gate.enter("many", [1]) for _ in range(4)]
        many.append(gate.enter("many", [1, 1]))  # the queue is full
        with pytest.raises(ApiError):
            gate.enter("many", [1])
        few = gate.enter("few", [1])  # for which the last request goes, all of it
        assert [refused(one) for one in many] == [[False]] * 4 + [[True, True]]
        with pytest.raises(ApiError) as caught:
            await many[-1][0].wait()
        assert caught.value.status == 429
        more = gate.enter("few", [1])
        assert not any(map(any, map(refused, many[:-1])))  # there was room
        with pytest.raises(ApiError):
            gate.enter("few", [1, 1])  # which would have as many as the other
        third = gate.enter("third", [1])
        assert refused(many[3]) == [True]
        assert gate.waiting == 6 and gate.running == 1
        for ticket in [*running, *few, *more, *third, *chain(*many)]:
            ticket.release()
        assert (gate.running, gate.waiting) == (0, 0)

    asyncio.run(main())


def test_a_request_that_has_begun_is_not_refused() -> None:
    async def main() -> None:
        gate = Gate(1, 3)
        begun = gate.enter("many", [1, 1, 1, 1])
        with pytest.raises(ApiError) as caught:
            gate.enter("few", [1])
        assert caught.value.status == 429 and not any(refused(begun))

    asyncio.run(main())


def test_places_without_a_limit_are_held_by_turns() -> None:
    async def main() -> None:
        gate, order = Gate(1, None), []

        async def hold(client: str) -> None:
            async with gate.place(client):
                order.append(client)
                await asyncio.sleep(0)

        await asyncio.gather(*map(hold, ["a", "a", "a", "b"]))
        assert order == ["a", "a", "b", "a"] and gate.running == 0

    asyncio.run(main())
