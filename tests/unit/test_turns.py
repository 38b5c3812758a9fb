"""The fair lock, and threads that take turns in running steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lora_host.errors import RequestError
from lora_sdk.engine.turns import FairLock, Turns, Waiter


def until(condition: Callable[[], bool]) -> None:
    for _ in range(20000):
        if condition():
            return
        time.sleep(0.0005)
    raise AssertionError("it did not come true in 10 s")


def test_a_lock_goes_to_threads_in_the_order_they_asked() -> None:
    lock, order = FairLock(), []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(8)]
    with lock:
        for i, thread in enumerate(threads):
            thread.start()
            until(lambda count=i + 1: len(lock._waiting) == count)  # type: ignore[misc]
        assert lock.contended
    for thread in threads:
        thread.join()
    assert order == list(range(8)) and not lock.contended


def test_a_thread_in_a_loop_does_not_keep_the_lock() -> None:
    """A thread that releases it and asks again comes behind the one that waits."""
    lock, turns, stop = FairLock(), 0, threading.Event()

    def spin() -> None:
        nonlocal turns
        while not stop.is_set():
            with lock:
                turns += 1
                time.sleep(0.001)

    spinning = threading.Thread(target=spin)
    spinning.start()
    until(lambda: turns > 0)
    for _ in range(20):
        before = turns
        with lock:
            assert turns <= before + 1
    stop.set()
    spinning.join()


def test_a_lock_is_reentrant_and_free_after_an_error() -> None:
    lock = FairLock()
    with pytest.raises(KeyError), lock, lock:
        raise KeyError
    other = threading.Thread(target=lock.__enter__)
    other.start()
    other.join(10)
    assert not other.is_alive()


def test_steps_move_on_to_the_oldest_waiting_thread() -> None:
    """Ten threads wait for their number of steps in all; each returns after the step that makes it,
    and every step is run by the oldest thread that is still there."""
    turns, steps, drivers = Turns(), 0, []
    returned: list[tuple[int, int]] = []
    waiters = [Waiter() for _ in range(10)]

    def advance() -> None:
        nonlocal steps
        steps += 1
        drivers.append(threading.current_thread().name)
        for waiter in waiters:
            waiter.wake()
        time.sleep(0.002)

    def wait(number: int) -> None:
        turns.wait(waiters[number], lambda: steps >= 5 * (10 - number), advance)
        returned.append((number, steps))

    threads = [threading.Thread(target=wait, args=(i,), name=str(i)) for i in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(number for number, _ in returned) == list(range(10)) and steps == 50
    assert len(set(drivers)) == 1  # the first stayed, as it had asked for the most steps


def test_a_driver_that_leaves_or_fails_wakes_the_next() -> None:
    turns, done = Turns(), []

    def run(number: int, fails: bool) -> None:
        count = 0

        def advance() -> None:
            nonlocal count
            count += 1
            time.sleep(0.002)
            if fails and count == 2:
                raise KeyboardInterrupt

        try:
            turns.wait(Waiter(), lambda: count >= 3, advance)
        except KeyboardInterrupt:
            done.append(-number)
        else:
            done.append(number)

    threads = [threading.Thread(target=run, args=(i, i % 2 == 1)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(done) == [-7, -5, -3, -1, 2, 4, 6, 8]


def test_a_callback_of_a_step_may_not_wait_for_steps() -> None:
    turns = Turns()
    raised: list[str] = []

    def advance() -> None:
        with pytest.raises(RequestError, match="wait for itself") as caught:
            turns.wait(Waiter(), lambda: False, advance)
        raised.append(str(caught.value))

    turns.wait(Waiter(), lambda: bool(raised), advance)
    assert len(raised) == 1
    turns.wait(Waiter(), lambda: len(raised) == 2, advance)  # it drives again afterwards
