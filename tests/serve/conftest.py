"""One server for all tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lora_sdk import Engine
from tests.served import Served, chat_model, eventually, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo model with a chat template, served."""
    model = chat_model(tmp_path_factory.mktemp("model"))
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield running
        assert eventually(running.settled)
