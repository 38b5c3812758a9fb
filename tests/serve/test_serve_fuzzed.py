"""Requests that schemathesis makes of the server's own description; all answers are errors of the
protocol or none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from lora_sdk import Engine
from tests.serve.test_serve_tools import TEMPLATES
from tests.served import QWEN, eventually, fim_model, served

EXAMPLES = 12  # of a path


def fuzz(operation: Any, url: str) -> Counter[int]:
    """Answers by status."""
    from schemathesis.checks import not_a_server_error, response_schema_conformance

    answers: Counter[int] = Counter()

    @seed(1)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        got = case.call(base_url=url, timeout=20)
        answers[got.status_code] += 1
        case.validate_response(got, checks=[not_a_server_error, response_schema_conformance])

    ask()
    return answers


@pytest.mark.slow
def test_requests_made_of_the_description(tmp_path: Path) -> None:
    schemathesis: Any = pytest.importorskip("schemathesis")  # needs Python 3.11
    model = fim_model(tmp_path, *QWEN)
    (model / "chat_template.jinja").write_text(TEMPLATES["hermes"])
    with served(
        lambda progress: Engine(
            model, progress=progress, context=256, max_adapters=1, embeddings=True
        ),
        request_timeout=2.0, adapter_root=str(tmp_path),
    ) as running:  # fmt: skip
        told = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
        answers = {one.ok().path: fuzz(one.ok(), running.url) for one in told.get_all_operations()}
        assert eventually(running.settled)
    assert len(answers) == 19 and all(answers.values()), answers
    total = sum(answers.values(), Counter[int]())
    assert total[200] > 20 and total[400] > 20, answers  # some are taken, some refused
