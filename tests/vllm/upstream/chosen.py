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

EXPECTED = {
    "test_completion.py::test_single_completion": "asserts 6 tokens of OPT's tokenizer",
    "test_completion.py::test_logprob_token_ids": "asks for token 5000; the demo model has 4096",
    "test_chat.py::test_single_chat_session": "asserts token counts of Zephyr's tokenizer",
    "test_chat.py::test_structured_outputs_json_chat": "asserts JSON that ends within 1000 tokens",
    "test_chat.py::test_response_format_json_object": "asserts that the model knows 1 + 1",
    "test_chat.py::test_response_format_json_schema": "asserts that the model knows 1 + 1",
    "test_chat.py::test_complex_message_content": "asserts that the model knows 1 + 1",
    "test_return_token_ids.py::test_chat_completion_with_tool_use": "asserts ChatML's template",
    "test_return_token_ids.py::test_chat_completion_with_emoji": "asserts ChatML's template",
}
"""By the file's name and the beginning of the test's."""

LEFT_OUT = {
    "test_metrics.py::test_metrics_exist_run_batch": (
        "an embedding model that it downloads; it asks before that is there, so it passes without"
    ),
}
"""The same of tests whose result says nothing of boards."""
