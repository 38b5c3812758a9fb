"""SIGTERM that does what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from lora_host.interrupt import Interrupt, ended_as_by_ctrl_c


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of before, whatever a test has done. SIGTERM would end the tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
def test_it_interrupts(before: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_calls_into_c_end_first() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = False
    with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c(), Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        ended = interrupt.pressed
    assert ended


def test_another_thread_leaves_signals_alone() -> None:
    found: list[object] = []

    def look() -> None:
        with ended_as_by_ctrl_c():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_IGN]
