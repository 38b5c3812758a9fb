"""Chat templates written from the constructs that model families use, and conversations. None is a
family's own file; what each does is: roles, tools, calls, results, thoughts, dates, JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATES = {
    file.stem: file.read_text()
    for file in sorted(Path(__file__).with_name("templates").glob("*.jinja"))
}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city, says Müller's <service>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A “city”"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "where": {
                        "type": "object",
                        "properties": {
                            "lat": {"type": "number", "minimum": -90},
                            "lon": {"type": ["number", "null"]},
                        },
                        "required": ["lat"],
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "stop",
            "description": "Stop.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]  # fmt: skip
_CALL = {
    "id": "call_abcdef123",
    "type": "function",
    "function": {
        "name": "get_weather",
        "arguments": {
            "city": "Zürich <&> 東京", "unit": "C", "days": [1, 2], "where": {"lat": 47.5},
            "now": True, "none": None,
        },
    },
}  # fmt: skip
_STOP = {"id": "call_2", "type": "function", "function": {"name": "stop", "arguments": {}}}
_USER = {"role": "user", "content": " What is the weather in Zürich? 🌦\n"}
_SYSTEM = {"role": "system", "content": "You are é <b>kind</b>. /no_think\nSecond line."}
_CALLED = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "call_abcdef123", "content": '{"temp": 21.5, "é": null}'}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "a question": {"messages": [_USER]},
    "a system": {"messages": [_SYSTEM, _USER]},
    "turns": {
        "messages": [
            _SYSTEM, _USER, {"role": "assistant", "content": "\nFine, 20° \n"},
            {"role": "user", "content": "<tool_response>x</tool_response>"},
        ]
    },
    "thoughts": {
        "messages": [
            _USER, {"role": "assistant", "content": "<think>\nHm, é\n</think>\n\nFine."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "\nIt is.\n"},
        ],
        "add_generation_prompt": False,
    },
    "tools": {"messages": [_SYSTEM, _USER], "tools": TOOLS},
    "a call": {"messages": [_USER, _CALLED, _RESULT], "tools": TOOLS},
    "two calls": {
        "messages": [
            _SYSTEM, _USER, {**_CALLED, "content": "Let me look.", "tool_calls": [_CALL, _STOP]},
            _RESULT, {**_RESULT, "tool_call_id": "call_2", "content": "stopped"},
            {"role": "assistant", "content": "It is 21.5 °C."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": TOOLS,
    },
    "nulls": {
        "messages": [
            {**_USER, "name": None},
            {"role": "assistant", "content": "Hello", "tool_calls": None, "reasoning": None},
            _USER,
        ]
    },
    "variables": {"messages": [_USER], "enable_thinking": False, "reasoning_effort": "high"},
    "the last goes on": {
        "messages": [_USER, {"role": "assistant", "content": "The weather is "}],
        "add_generation_prompt": False, "continue_final_message": True,
    },
}  # fmt: skip
