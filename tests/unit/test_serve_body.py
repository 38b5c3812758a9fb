"""Bodies of requests that are refused: the message says where the fault is."""

from __future__ import annotations

from typing import Any

import pytest

from lora_sdk.serve.body import parse
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.completions import CompletionBody
from lora_sdk.serve.errors import ApiError

PART = {"type": "text", "text": 5}
TOOLS = [{"type": "function", "function": {}}]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": [[1, "x"]]}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "stop": {"x": 1}}, "stop"),
        ({"prompt": "a", "logit_bias": {"5": "x"}}, "logit_bias.5"),
        ({"messages": [{"role": "nobody", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [PART]}]}, "messages.0.content"),
        ({"messages": [{"role": "user"}], "tools": TOOLS}, "tools.0.function.name"),
    ],
)
def test_a_field_is_named_by_its_place_in_the_body(body: dict[str, Any], where: str) -> None:
    """Not by the one of its types that was tried."""
    kind = ChatBody if "messages" in body else CompletionBody
    with pytest.raises(ApiError) as caught:
        parse(kind, {"model": "demo", **body})
    message, place = str(caught.value), where.split(".")[0]
    assert message.split(": ")[0] == where and caught.value.param == place
