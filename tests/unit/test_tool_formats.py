"""Calls of tools in the forms that model families publish."""

from __future__ import annotations

import random

import pytest

from lora_sdk.arguments.option import options_of
from lora_sdk.serve.settings import Settings
from lora_sdk.serve.tool_calls import ToolCall, ToolText
from lora_sdk.serve.tool_formats import NAMES, deepseek_mark, tool_format
from tests.mutations import time_limit

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "where": {}},
}
PARIS, TOKYO = ToolCall("weather", '{"city": "Paris"}'), ToolCall("weather", '{"city": "Tokyo"}')
OTHER = '{"name": "other", "arguments": {}}'
PUBLISHED = [
    ("hermes", '<tool_call>\n{"arguments": {"city": "Paris"}, "name": "weather"}\n</tool_call>\n',
     "", [PARIS]),
    ("hermes", '<tool_call>{"name": "weather", "parameters": {"city": "Paris"}}</tool_call>', "",
     [PARIS]),
    ("hermes", f"a <tool_call>{OTHER}</tool_call> b", f"a <tool_call>{OTHER}</tool_call> b", []),
    ("qwen3_coder", "Look.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n"
     "</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=where>\n{\"a\": [1]}\n"
     "</parameter>\n</function>\n</tool_call>", "Look.\n",
     [ToolCall("weather", '{"city": "Paris", "days": 2, "where": {"a": [1]}}')]),
    ("qwen3_coder", "<tool_call>\n<function=weather>\n<parameter=city>\n5\n\n</parameter>\n"
     "</function>\n</tool_call>", "", [ToolCall("weather", '{"city": "5\\n"}')]),
    ("qwen3_coder", "<tool_call>\n<function=weather>\n</function>\n</tool_call>", "",
     [ToolCall("weather", "{}")]),
    ("qwen3_coder", "<tool_call>x</tool_call>", "<tool_call>x</tool_call>", []),
    ("llama3_json", '<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}', "",
     [PARIS]),
    ("llama3_json", 'Sure, {a}: {"name": "weather", "arguments": {"city": "Paris"}}', "Sure, {a}: ",
     [PARIS]),
    ("llama3_json", '{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}', "",
     [PARIS]),
    ("llama3_json", OTHER, OTHER, []),
    ("llama3_json", 'x {"name": "weather"', 'x {"name": "weather"', []),
    ("llama3_json", "f {\n  int x; } [1] {", "f {\n  int x; } [1] {", []),
    ("llama4_pythonic", "[weather(city='Paris'), weather(city=\"Tokyo\")]", "", [PARIS, TOKYO]),
    ("llama4_pythonic", "<|python_start|>[weather(city='Pa\\'ris', days=-2, where={'a': [1.5, "
     "None, True, ]})]<|python_end|>", "",
     [ToolCall("weather", '{"city": "Pa\'ris", "days": -2, "where": {"a": [1.5, null, true]}}')]),
    ("llama4_pythonic", "[weather(city=open('x'))]", "[weather(city=open('x'))]", []),
    ("llama4_pythonic", "[weather(city='a')", "[weather(city='a')", []),
    ("llama4_pythonic", "[other(city='a')]", "[other(city='a')]", []),
    ("llama4_pythonic", "[1, 2] is a list", "[1, 2] is a list", []),
    ("gpt_oss", 'Ok.<|channel|>commentary to=functions.weather <|constrain|>json<|message|>'
     '{"city": "Paris"}', "Ok.", [PARIS]),
    ("gpt_oss", '<|channel|>commentary to=functions.weather<|message|>{"city": "Paris"}<|call|>'
     '<|channel|>commentary to=functions.weather json<|message|>{"city": "Tokyo"}<|call|>', "",
     [PARIS, TOKYO]),
    ("gpt_oss", "<|channel|>commentary to=functions.other<|message|>{}",
     "<|channel|>commentary to=functions.other<|message|>{}", []),
    ("gpt_oss", "<|channel|>commentary to=functions.weather<|message|>[]",
     "<|channel|>commentary to=functions.weather<|message|>[]", []),
    ("mistral", '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}, "id": '
     '"VvvODy9mT"}]', "", [PARIS]),
    ("mistral", 'Ok.[TOOL_CALLS]weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}[TOOL_CALLS]weather'
     '[ARGS]{"city": "Tokyo"}', "Ok.", [PARIS, TOKYO]),
    ("mistral", "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]other[ARGS]{}", []),
    ("deepseek_v3", "Ok.{calls begin}{call begin}function{sep}weather\n```json\n"
     "{'city': 'Paris'}\n```{call end}\n{call begin}function{sep}weather\n```json\n"
     "{'city': 'Tokyo'}\n```{call end}{calls end}", "Ok.", [PARIS, TOKYO]),
    ("deepseek_v3", "{calls begin}{call begin}weather{sep}{'city': 'Paris'}{call end}{calls end}",
     "", [PARIS]),
    ("deepseek_v3", "{calls begin}{call begin}weather{sep}{call end}{calls end}",
     "{calls begin}{call begin}weather{sep}{call end}{calls end}", []),
    ("glm45", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>", "",
     [ToolCall("weather", '{"city": "Paris", "days": 2}')]),
    ("glm45", "<tool_call>a b</tool_call>", "<tool_call>a b</tool_call>", []),
    ("functiongemma", "<start_function_call>call:weather{city:<escape>Paris<escape>}"
     "<end_function_call>", "", [PARIS]),
    ("functiongemma", "<start_function_call>call:weather{city:<escape>a,{b}<escape>,days:3,"
     "where:[true,{x:<escape>y<escape>}]}<end_function_call>", "",
     [ToolCall("weather", '{"city": "a,{b}", "days": 3, "where": [true, {"x": "y"}]}')]),
    ("gemma4", '<|tool_call>call:weather{city:<|"|>Paris<|"|>}<tool_call|>', "", [PARIS]),
    ("gemma4", "<|tool_call>call:a{b<tool_call|>", "<|tool_call>call:a{b<tool_call|>", []),
]  # fmt: skip
_MARKS = ("tool calls begin", "tool calls end", "tool call begin", "tool call end", "tool sep")


def _deepseek(text: str) -> str:
    """The text with DeepSeek's marks and JSON's quotes."""
    for words in _MARKS:
        text = text.replace(f"{{{words.removeprefix('tool ')}}}", deepseek_mark(words))
    return text.replace("'", '"')


@pytest.mark.parametrize(("family", "text", "content", "calls"), PUBLISHED)
def test_calls_as_model_families_publish_them(
    family: str, text: str, content: str, calls: list[ToolCall]
) -> None:
    """However the text comes; `weather` alone is offered."""
    if family.startswith("deepseek"):
        text, content = _deepseek(text), _deepseek(content)
    rng, form = random.Random(7), tool_format(family, "")
    for size in (10_000, 1, 2, 3, 0, 0, 0):
        splitter, shown, found, at = ToolText(form, {"weather": WEATHER}), "", [], 0
        while at < len(text):
            end = at + (size or rng.randint(1, 9))
            more, called = splitter.push(text[at:end])
            shown, found, at = shown + more, found + called, end
        more, called = splitter.finish()
        assert (shown + more, found + called) == (content, calls), size
        if family == "mistral":  # whose templates take no others
            assert all(len(call.id) == 9 and call.id.isalnum() for call in found + called)


def test_every_parser_can_be_named_and_is_in_the_corpus() -> None:
    choices = options_of(Settings)["tool_call_parser"].choices
    assert set(choices) == {"auto", *NAMES} == {"auto", *(name for name, *_ in PUBLISHED)}


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<tool_call>", "hermes"), ("<tool_call> <function=x>", "qwen3_coder"),
        ("<tool_call>{{ n }}<arg_key>", "glm45"), ("ipython <|python_start|>", "llama4_pythonic"),
        ("ipython", "llama3_json"), ("[TOOL_CALLS]", "mistral"), ("{{ messages }}", None),
        (deepseek_mark("tool calls begin"), "deepseek_v3"),
    ],
)  # fmt: skip
def test_the_form_is_that_of_the_template(template: str, name: str | None) -> None:
    found = tool_format("auto", template)
    assert (None if found is None else found.name) == name


def test_hostile_texts_of_calls_are_read_in_time() -> None:
    """A grammar may force a model to write them."""
    texts = [
        ("llama4_pythonic", "[weather(a=" + "[" * 200_000),
        ("llama4_pythonic", "[weather(a='" + "\\" * 200_000),
        ("llama4_pythonic", "[weather(a=" + "9" * 200_000 + ")]"),
        ("llama3_json", '{"name": "weather", "parameters": ' + '{"a":' * 200_000),
        ("llama3_json", '{"n' * 100_000),
        ("functiongemma", "<start_function_call>call:weather" + "{a:" * 200_000
         + "<end_function_call>"),
        ("qwen3_coder", "<tool_call><function=weather>" + "<parameter=a>" * 20_000
         + "</tool_call>"),
        ("glm45", "<tool_call>weather" + "<arg_key>a</arg_key>" * 20_000 + "</tool_call>"),
        ("deepseek_v3", _deepseek("{calls begin}" + "{call begin}weather{sep}" * 3000
                                  + "{calls end}")),
        ("mistral", "[TOOL_CALLS]" + "a" * 200_000 + "{" * 1000),
    ]  # fmt: skip
    for family, text in texts:
        splitter = ToolText(tool_format(family, ""), {"weather": WEATHER})
        with time_limit(5):
            content, calls = splitter.push(text)
            more, called = splitter.finish()
        assert content + more == text or [call.name for call in calls + called] == ["weather"]
