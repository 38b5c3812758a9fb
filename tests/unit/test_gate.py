"""Calls that pass a gate at once, and calls that bar it."""

from __future__ import annotations

import threading
import time

import pytest

from lora_host.gate import Gate


def within(condition: threading.Event) -> bool:
    return condition.wait(20)


def test_calls_pass_at_once() -> None:
    gate, both = Gate(), threading.Barrier(2, timeout=20)

    def call() -> None:
        with gate.passing():
            both.wait()

    thread = threading.Thread(target=call)
    thread.start()
    call()
    thread.join()


def test_barring_waits_for_those_inside_and_keeps_others_out() -> None:
    gate = Gate()
    inside, leave, barred, end = (threading.Event() for _ in range(4))
    order: list[str] = []

    def call() -> None:
        with gate.passing():
            inside.set()
            assert within(leave)
            order.append("left")

    def bar() -> None:
        with gate.barred(), gate.barred():
            order.append("barred")
            barred.set()
            assert within(end)
            order.append("open")

    def late() -> None:
        with gate.passing():
            order.append("late")

    threads = [threading.Thread(target=call)]
    threads[0].start()
    assert within(inside)
    threads.append(threading.Thread(target=bar))
    threads[1].start()
    assert not barred.wait(0.05)
    leave.set()
    assert within(barred)
    threads.append(threading.Thread(target=late))
    threads[2].start()
    time.sleep(0.05)
    end.set()
    for thread in threads:
        thread.join()
    assert order == ["left", "barred", "open", "late"]


def test_an_error_leaves_the_gate_open() -> None:
    gate = Gate()
    for way in (gate.passing, gate.barred):
        with pytest.raises(ValueError), way():
            raise ValueError
    with gate.barred():
        pass
