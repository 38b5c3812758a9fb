"""The fields that restrict a text to a JSON schema, a regular expression, choices or a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from llguidance import LLMatcher
from pydantic import Field

from lora_sdk.serve.body import Fields, StreamedFields, items
from lora_sdk.serve.errors import ApiError

MAX_SCHEMA = 1 << 16  # characters
MAX_GRAMMAR = 1 << 14
MAX_REGEX = 1 << 12

_NOT_AHEAD = '\n%llguidance {"no_forcing": true}\n'
"""Behind each grammar, where the last word counts: a mask looks no further than a token. Else
llguidance follows what is forced to its end for each of them, however long that is."""

_AS_THEY_ARE = ("const", "enum", "default", "examples")
"""Keywords of a schema that hold values."""
_BY_NAME = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Those that hold schemas by name."""

Schema = dict[str, Any]
Choices = Annotated[list[Annotated[str, Field(min_length=1)]], items(1, 1024)]


class JsonSchema(Fields):
    """OpenAI's. `strict` and names have no effect: the schema is always kept."""

    name: str = ""
    description: str = ""
    strict: bool = True
    schema_: Schema = Field(alias="schema")


class ResponseFormat(Fields):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Fields):
    """vLLM's `structured_outputs`."""

    json_: Schema | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None


class GrammarFields(StreamedFields):
    """OpenAI's field, and vLLM's in their new and their old form; one at most."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    def grammar(self) -> tuple[str, str] | None:
        """(the field, its grammar for llguidance), None where the text is free. ApiError 400."""
        found = [(name, make, value) for name, make, value in self._given() if value is not None]
        if not found:
            return None
        if len(found) > 1:
            raise ApiError(
                400, f"{found[0][0]} and {found[1][0]} exclude each other", param=found[1][0]
            )
        name, make, value = found[0]
        try:
            return name, make(value)
        except ValueError as error:
            raise ApiError(400, f"{name}: {error!s:.300}", param=name) from None

    def _given(self) -> list[tuple[str, Callable[[Any], str], Any]]:
        """(field, what makes its grammar, its value)."""
        new = self.structured_outputs or StructuredOutputs()
        return [
            ("response_format", schema_grammar, _schema_of(self.response_format)),
            ("guided_json", schema_grammar, self.guided_json),
            ("guided_regex", _from_regex, self.guided_regex),
            ("guided_choice", _from_choices, self.guided_choice),
            ("guided_grammar", _from_lark, self.guided_grammar),
            ("structured_outputs", schema_grammar, new.json_),
            ("structured_outputs", schema_grammar, {"type": "object"} if new.json_object else None),
            ("structured_outputs", _from_regex, new.regex),
            ("structured_outputs", _from_choices, new.choice),
            ("structured_outputs", _from_lark, new.grammar),
        ]


def _schema_of(format: ResponseFormat | None) -> Schema | None:
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return {"type": "object"}
    if format.json_schema is None:
        raise ApiError(400, "response_format: json_schema is missing", param="response_format")
    return format.json_schema.schema_


def schema_grammar(schema: Schema | str) -> str:
    """The grammar of a JSON schema. ValueError where it is too long or no JSON."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    _check_size(text, MAX_SCHEMA)
    if '"not"' in text:
        plain = rewritten(json.loads(text), _without_not)
        if plain is False:
            raise ValueError("it allows no text")
        text = json.dumps(plain)
    # No free white space: a model may write it without end.
    whole = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
    schema = json.loads(whole)["grammars"][0]["json_schema"]
    return f"start: %json {json.dumps(schema)}{_NOT_AHEAD}"


def rewritten(schema: Any, change: Callable[[Schema], Any]) -> Any:
    """The same with `change` of each schema in it, the inner ones first."""
    if isinstance(schema, list):
        return [rewritten(one, change) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            found[key] = {name: rewritten(one, change) for name, one in value.items()}
        else:
            found[key] = value if key in _AS_THEY_ARE else rewritten(value, change)
    return change(found)


def _without_not(schema: Schema) -> Any:
    """A "not" of everything, as generators of schemas write "nothing", is false, and one of nothing
    goes: llguidance knows no "not"."""
    refused = schema.get("not", False)
    if refused in ({}, True):
        return False
    return {key: value for key, value in schema.items() if key != "not" or refused is not False}


def _from_regex(regex: str) -> str:
    _check_size(regex, MAX_REGEX)
    whole = json.loads(LLMatcher.grammar_from_regex(regex))
    return f"{whole['grammars'][0]['lark_grammar']}{_NOT_AHEAD}"


def _from_choices(choices: list[str]) -> str:
    return _from_lark("start: " + " | ".join(map(json.dumps, choices)), MAX_SCHEMA)


def _from_lark(grammar: str, limit: int = MAX_GRAMMAR) -> str:
    _check_size(grammar, limit)
    return f"{grammar}{_NOT_AHEAD}"


def _check_size(text: str, limit: int) -> None:
    if len(text) > limit:
        raise ValueError(f"{len(text)} characters; expected at most {limit}")
