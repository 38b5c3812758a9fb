"""How families of models write calls of tools."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lora_sdk.serve import harmony
from lora_sdk.serve.tool_values import Reader

Schemas = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments, by the tools that are offered."""


@dataclass(frozen=True)
class Parsed:
    """A call as a text has it; `id` where the text names one."""

    name: str
    arguments: Any
    id: str | None = None


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls: `begin` opens one, `end` closes it, "" where the text's
    end does; `parse` reads what lies between, ValueError for anything else. `hint`: a text that
    templates of the family hold. `bare`: what a call without `begin` begins with, which then goes
    on to the text's end; with `opening` nothing but white space lies before it. `make_id`: of
    calls."""

    name: str
    hint: str
    begin: str
    end: str
    parse: Callable[[str, Schemas], list[Parsed]]
    bare: re.Pattern[str] | None = None
    opening: bool = False
    make_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(12)}"


AUTO = "auto"


def tool_format(chosen: str, template: str) -> ToolFormat | None:
    """The form named `chosen`; AUTO: the one that a chat template asks for, None where it knows no
    tools."""
    if chosen != AUTO:
        return next(one for one in _FORMATS if one.name == chosen)
    return next((one for one in _FORMATS if one.hint in template), None)


def forced_format(name: str | None) -> ToolFormat:
    """Where a grammar forces calls: the arguments of the tool `name` alone, or a list of calls."""
    parse = _listed if name is None else _named(name)
    return ToolFormat("forced", "", "\0", "", parse, _ANYTHING, opening=True)


def _object(value: Any) -> Parsed:
    """Of {"name": ..., "arguments": {...}}, or "parameters", as some models have it."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no name")
    given = value.get("arguments", value.get("parameters", {}))
    if not isinstance(given, dict):
        raise ValueError("arguments are no object")
    return Parsed(value["name"], given)


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("arguments are no object")
    return value


def _hermes(text: str, _schemas: Schemas) -> list[Parsed]:
    return [_object(json.loads(text))]


_MISTRAL = re.compile(
    r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*([A-Za-z0-9_-]{1,64})\s*)?(?:\[ARGS\])?\s*(\{.*\})\s*",
    re.DOTALL,
)


def _mistral(text: str, _schemas: Schemas) -> list[Parsed]:
    """A list of objects, or in the later forms NAME{...} and NAME[CALL_ID]ID[ARGS]{...}."""
    if (text := text.strip()).startswith("["):
        return [_with_id(one) for one in json.loads(text)]
    found = []
    for part in text.split("[TOOL_CALLS]"):
        match = _MISTRAL.fullmatch(part)
        if match is None:
            raise ValueError("no call")
        found.append(Parsed(match.group(1), _json_object(match.group(3)), match.group(2)))
    return found


def _with_id(value: Any) -> Parsed:
    """Of an object that may have an id."""
    call, name = _object(value), value.get("id")
    known = isinstance(name, str) and re.fullmatch("[A-Za-z0-9]{9}", name) is not None
    return Parsed(call.name, call.arguments, name if known else None)


def _mistral_id() -> str:
    """Templates of the family take ids of nine letters and digits alone."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


def _llama(text: str, _schemas: Schemas) -> list[Parsed]:
    """Objects, between semicolons."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.strip().removeprefix("<|python_tag|>").strip()
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        found.append(_object(value))
        at = end + len(re.match(r"[\s;]*", text[end:]).group())  # type: ignore[union-attr]
    return _some(found)


def _pythonic(text: str, _schemas: Schemas) -> list[Parsed]:
    """[name(a=1, b='x'), other()]"""
    reader = Reader(text.strip().removesuffix("<|python_end|>"))
    found: list[Parsed] = []
    reader.expect("[")
    while not reader.has("]"):
        if found:
            reader.expect(",")
        name = reader.name()
        reader.expect("(")
        found.append(Parsed(name, reader.arguments(")")))
    if not reader.ended:
        raise ValueError("text after the calls")
    return _some(found)


def _some(found: list[Parsed]) -> list[Parsed]:
    if not found:
        raise ValueError("no call")
    return found


_XML_CALL = re.compile(r"\s*<function=([^>\n]+)>(.*?)(?:</function>)?\s*", re.DOTALL)
_XML_ARGUMENT = re.compile(
    r"\s*<parameter=([^>\n]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)\s*", re.DOTALL
)


def _xml(text: str, schemas: Schemas) -> list[Parsed]:
    """<function=NAME><parameter=KEY>VALUE</parameter></function>"""
    match = _XML_CALL.fullmatch(text)
    if match is None:
        raise ValueError("no call")
    name = match.group(1).strip()
    return [Parsed(name, _pairs(_XML_ARGUMENT, match.group(2), schemas.get(name, {})))]


_KEY_VALUE = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)


def _glm(text: str, schemas: Schemas) -> list[Parsed]:
    """NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"""
    name, found, rest = text.strip().partition("<arg_key>")
    name = name.strip()
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError("no name")
    return [Parsed(name, _pairs(_KEY_VALUE, found + rest, schemas.get(name, {})))]


def _pairs(pattern: re.Pattern[str], text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Keys and values, the latter by the types that the schema has."""
    found, at, text = {}, 0, text.strip()
    known = schema.get("properties")
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            raise ValueError("no argument")
        key, value = match.group(1).strip(), match.group(2)
        value = value.removeprefix("\n").removesuffix("\n")
        wanted = known.get(key) if isinstance(known, Mapping) else None
        found[key] = _typed(value, wanted)
        at = match.end()
    return found


def _typed(text: str, schema: Any) -> Any:
    """A text that is a string where the schema says so, else JSON if it can be."""
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        words: dict[str, Any] = {"True": True, "False": False, "None": None}
        return words.get(text.strip(), text)


def deepseek_mark(words: str) -> str:
    """DeepSeek's mark of these words: of full-width bars, with a special space."""
    return f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")


_CALLS, _CALLS_END = deepseek_mark("tool calls begin"), deepseek_mark("tool calls end")
_SEP = deepseek_mark("tool sep")
_DEEPSEEK_CALL = re.compile(
    rf"\s*{deepseek_mark('tool call begin')}(?:function{_SEP}([\w.-]+)\s*```json\s*(.*?)\s*```"
    rf"|([\w.-]+){_SEP}(.*?))\s*{deepseek_mark('tool call end')}\s*",
    re.DOTALL,
)


def _deepseek(text: str, _schemas: Schemas) -> list[Parsed]:
    """Calls between marks, with (V3, R1) or without (V3.1) a block of code."""
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _DEEPSEEK_CALL.match(text, at)
        if match is None:
            raise ValueError("no call")
        old, given, new, bare = match.groups()
        found.append(Parsed(old or new, _json_object(given if old else bare)))
        at = match.end()
    return _some(found)


_HARMONY_CALL = re.compile(
    r"([\w.-]+)\s*(?:<\|constrain\|>\s*\w+|json)?\s*<\|message\|>(.*)", re.DOTALL
)


def _harmony(text: str, _schemas: Schemas) -> list[Parsed]:
    """NAME <|constrain|>json<|message|>{...}, and further ones behind <|call|>."""
    found = []
    for part in text.removesuffix(harmony.CALL_END).split(harmony.CALL_END):
        match = _HARMONY_CALL.fullmatch(part.removeprefix(harmony.CALL))
        if match is None:
            raise ValueError("no call")
        found.append(Parsed(match.group(1), _json_object(match.group(2))))
    return found


def _gemma(mark: str) -> Callable[[str, Schemas], list[Parsed]]:
    """call:NAME{key:VALUE}, strings between `mark`."""

    def parse(text: str, _schemas: Schemas) -> list[Parsed]:
        reader = Reader(text, mark)
        reader.expect("call:")
        name, arguments = reader.name(), reader.value()
        if not isinstance(arguments, dict) or not reader.ended:
            raise ValueError("no call")
        return [Parsed(name, arguments)]

    return parse


def _named(name: str) -> Callable[[str, Schemas], list[Parsed]]:
    return lambda text, _schemas: [Parsed(name, json.loads(text))]


def _listed(text: str, _schemas: Schemas) -> list[Parsed]:
    return [_object(one) for one in json.loads(text)]


_ANYTHING = re.compile("")
_BARE_JSON = re.compile(r'\{\s*"(?:name|type)"')
_BARE_PYTHON = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_FORMATS = (
    ToolFormat("gpt_oss", "to=functions.", harmony.CALL, "", _harmony),
    ToolFormat("glm45", "<arg_key>", "<tool_call>", "</tool_call>", _glm),
    ToolFormat("qwen3_coder", "<function=", "<tool_call>", "</tool_call>", _xml),
    ToolFormat("hermes", "<tool_call>", "<tool_call>", "</tool_call>", _hermes),
    ToolFormat("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", _mistral, make_id=_mistral_id),
    ToolFormat("deepseek_v3", _CALLS, _CALLS, _CALLS_END, _deepseek),
    ToolFormat(
        "functiongemma", "<start_function_call>", "<start_function_call>", "<end_function_call>",
        _gemma("<escape>"),
    ),
    ToolFormat("gemma4", "<|tool_call>", "<|tool_call>", "<tool_call|>", _gemma('<|"|>')),
    ToolFormat(
        "llama4_pythonic", "<|python_start|>", "<|python_start|>", "", _pythonic, _BARE_PYTHON,
        opening=True,
    ),
    ToolFormat("llama3_json", "ipython", "<|python_tag|>", "", _llama, _BARE_JSON),
)  # fmt: skip
NAMES = tuple(one.name for one in _FORMATS)
