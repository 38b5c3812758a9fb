"""Which of vLLM's tests run, and which cannot pass, with the reason."""

from __future__ import annotations

NEEDS = ("setuptools-rust", "setuptools-scm", "pytest-asyncio")
"""Of the index: what the source package's metadata is made with, and how its tests run."""

CHOSEN = (
    "openai/completion/test_completion.py",
    "openai/chat_completion/test_chat.py",
    "openai/chat_completion/test_chat_completion.py",
    "openai/test_return_token_ids.py",
    "openai/test_return_tokens_as_ids.py",
    "openai/models/test_models.py",
    "serve/instrumentator/test_metrics.py",
)

EXPECTED: dict[str, str] = {}
"""By the file's name and the beginning of the test's."""
