"""A server tells of damaged weights: in its health, its status and its metrics."""

from __future__ import annotations

import re

import pytest

from lora_host.errors import TransportError
from lora_sdk import Engine
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
