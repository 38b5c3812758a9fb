"""Boards that fail under vLLM cost a pause; what cannot be recovered is an error in our words."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_sdk import demo_model_path
from tests.daemons import DaemonProcess
from tests.processes import ROOT
from tests.recovery_rig import FAULTS
from tests.vllm.rig import counts, expected, greedy, prompts, vllm_on_boards, worker_of
from tests.vllm.server import END_S, VllmServer

pytestmark = pytest.mark.vllm
KINDS = ("link down", "firmware dead", "VFU stuck", "blocks garbled")


def boards_of(llm: Any) -> Any:
    """The worker's boards."""
    return worker_of(llm)._boards


def before_steps(llm: Any, act: Callable[[int], object]) -> None:
    """Call `act` before each step of the boards with its number from 0 on."""
    stepper = boards_of(llm).stepper
    adapted, numbers = stepper._adapted, itertools.count()

    def count(rows: Any) -> Any:
        act(next(numbers))
        return adapted(rows)

    stepper._adapted = count


def before_step(llm: Any, step: int, act: Callable[[], object]) -> None:
    """Call `act` before a step of the boards, counted from 0."""
    before_steps(llm, lambda number: act() if number == step else None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_board_costs_a_pause(kind: str) -> None:
    """Requests that run go on; prefixes that vLLM keeps are computed again where they are used."""
    number, *rest = FAULTS[kind]
    texts = prompts(16)
    want = expected(demo_model_path(), texts, 16)
    with vllm_on_boards(demo_model_path()) as llm:
        emulated = boards_of(llm).opened.cluster.emulated

        def fail() -> None:
            emulated.fault(1, number | abi.FAULT_UNTIL_RESET, *rest)

        before_step(llm, 12, fail)
        assert greedy(llm, texts, 16) == want
        assert counts(llm)["recoveries"] == 1
        assert greedy(llm, texts, 16) == want
        assert counts(llm)["found_positions"] > 500


def test_a_lost_board_leaves_the_others_with_its_adapters() -> None:
    from vllm.lora.request import LoRARequest

    folder = ROOT / "models" / "demo_adapter_lora"
    texts = prompts(12)
    want = expected(demo_model_path(), texts, 12, adapter=folder, max_adapters=1)
    with vllm_on_boards(demo_model_path(), enable_lora=True, max_lora_rank=8) as llm:
        emulated = boards_of(llm).opened.cluster.emulated
        before_step(llm, 9, lambda: emulated.fault(2, abi.FAULT_BOARD_LOST))
        asked = [LoRARequest("a", 1, str(folder))] * len(texts)
        assert greedy(llm, texts, 12, lora_request=asked) == want
        assert boards_of(llm).opened.plan.size == 2
        assert greedy(llm, texts, 12, lora_request=asked) == want


def test_a_killed_daemon_costs_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated boards of a daemon that is killed in the middle and started again."""
    texts = prompts(12)
    want = expected(demo_model_path(), texts, 12)
    place = ("--socket", str(tmp_path / "boardd.sock"))
    monkeypatch.delenv("LORA_BOARDS")
    with ExitStack() as stack:
        first = stack.enter_context(DaemonProcess(*place))
        monkeypatch.setenv("LORA_DEVICES", ",".join(first.uris))

        def kill() -> None:
            first.process.kill()
            first.process.wait()
            stack.enter_context(DaemonProcess(*place))

        waiting = {"daemon_wait": 30}
        with vllm_on_boards(demo_model_path(), additional_config=waiting) as llm:
            before_step(llm, 10, kill)
            assert greedy(llm, texts, 12) == want
            assert counts(llm)["recoveries"] >= 1


def test_what_is_not_recovered_is_an_error_that_names_the_board() -> None:
    off = {"recovery": "off"}
    with pytest.raises(RuntimeError, match=r"boards: .*board 1"):  # noqa: SIM117
        with vllm_on_boards(demo_model_path(), additional_config=off) as llm:
            emulated = boards_of(llm).opened.cluster.emulated
            number, *rest = FAULTS["firmware dead"]
            before_step(llm, 5, lambda: emulated.fault(1, number, *rest))
            greedy(llm, prompts(4), 16)


def test_a_killed_server_leaves_no_engine_with_the_boards(tmp_path: Path) -> None:
    server = VllmServer([], tmp_path / "log", LORA_BOARDS="1")
    try:
        server.wait()
        assert "VLLM::EngineCore" in server.processes().values()
        server.process.kill()
        server.process.wait()
        end = time.monotonic() + END_S
        while server.processes():
            assert time.monotonic() < end, server.processes()
            time.sleep(0.2)
    finally:
        server.end()
