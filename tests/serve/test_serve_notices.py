"""A server tells of damaged weights: in its health, its status and its metrics."""

from __future__ import annotations

import re

import pytest

from lora_host import abi
from lora_host.errors import TransportError
from lora_sdk import Engine
from tests.recovery_rig import inject
from tests.scrub_rig import flip, sum_nothing
from tests.served import served


def count_of(text: str, name: str) -> float:
    (found,) = re.findall(rf"^{name}_total (\S+)$", text, re.MULTILINE)
    return float(found)


def test_damage_is_told() -> None:
    body = {"prompt": "a", "max_tokens": 4, "temperature": 0}
    with served(lambda progress: Engine(boards=2, progress=progress)) as running:
        want = running.post("/v1/completions", body).body["choices"]
        assert running.get("/health").body["weight_notices"] == 0
        assert running.get("/status").body["weight_notices"] == []
        assert count_of(running.get("/metrics").body, "lora_weight_notices") == 0
        sum_nothing(running.engine)
        place = flip(running.engine)
        assert running.post("/v1/completions", body).body["choices"] != want
        with pytest.raises(TransportError):
            running.engine.confirm()
        assert running.post("/v1/completions", body).body["choices"] == want
        (notice,) = running.get("/status").body["weight_notices"]
        assert place in notice["cause"] and notice["when"] > 0
        health = running.get("/health")
        assert health.status == 200 and health.body["weight_notices"] == 1
        text = running.get("/metrics").body
        assert count_of(text, "lora_weight_notices") == 1
        assert count_of(text, "lora_requests_in_doubt") == notice["ended"] == 1
        assert running.get("/ready").body == {
            key: value for key, value in health.body.items() if key != "weight_notices"
        }


def test_the_log_says_why_boards_have_failed(caplog: pytest.LogCaptureFixture) -> None:
    """A client is told no more than that they have."""
    body = {"prompt": "a", "max_tokens": 4, "temperature": 0}
    with served(lambda progress: Engine(boards=1, progress=progress)) as running:
        inject(running.engine, 0, abi.FAULT_BOARD_LOST, until_reset=False)
        reply = running.post("/v1/completions", body)
        assert reply.status == 503 and reply.body["error"]["message"] == "the boards failed"
        assert running.get("/health").body["status"] == "dead"
    (line,) = [
        one for one in caplog.records if one.name == "lora.serve" and one.levelname == "ERROR"
    ]
    assert "board 0" in line.getMessage() and "\n" not in line.getMessage()


def test_the_log_of_a_server_that_ends_tells_of_texts_that_may_be_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = {"prompt": "a", "max_tokens": 4, "temperature": 0}
    with served(lambda progress: Engine(boards=2, progress=progress)) as running:
        sum_nothing(running.engine)
        place = flip(running.engine)
        assert running.post("/v1/completions", body).status == 200
    assert place in caplog.text and "1 request that has ended may hold wrong tokens" in caplog.text
