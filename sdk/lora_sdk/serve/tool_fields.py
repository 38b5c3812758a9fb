"""Tools as chat requests name them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_sdk.serve.body import Fields
from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.grammar_fields import rewritten

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


_NONE = {"type": "object", "properties": {}}


class Function(Fields):
    """A function. `strict` has no effect on calls that the model makes freely."""

    name: ToolName
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NONE))
    strict: bool = False

    @property
    def schema_of_call(self) -> dict[str, Any]:
        """What arguments keep to: without `parameters` there are none."""
        given = "parameters" in self.model_fields_set
        return self.parameters if given else {**_NONE, "additionalProperties": False}


class Tool(Fields):
    """A tool; functions alone are supported."""

    type: Literal["function"]
    function: Function

    def as_template(self) -> dict[str, Any]:
        """As chat templates know tools."""
        shown = {"name": self.function.name, "description": self.function.description}
        return {"type": "function", "function": {**shown, "parameters": self.function.parameters}}


class NamedFunction(Fields):
    """The function that must be called."""

    name: ToolName


class NamedTool(Fields):
    """The tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class CalledFunction(Fields):
    """A call in an earlier message; `arguments` is JSON text, or "" for none."""

    name: Annotated[str, Field(min_length=1, max_length=256)]  # any model's
    arguments: str = "{}"


class CalledTool(Fields):
    """A call in an earlier message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def as_template(self) -> dict[str, Any]:
        """As chat templates know calls. ApiError 400 where the arguments are no JSON object."""
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise ApiError(
                400, "messages: arguments of a call are no JSON object", param="messages"
            )
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


def forced_schema(
    tools: list[Tool], choice: NamedTool | str, parallel: bool
) -> dict[str, Any] | None:
    """The schema of a text that must be a call, None where the model is free. ApiError 400."""
    if isinstance(choice, str):
        if choice != "required":
            return None
        calls, schemas = [], {}
        for index, function in enumerate(tool.function for tool in tools):
            place = f"tool{index}"
            schemas[place] = _moved(function.schema_of_call, f"#/$defs/{place}")
            given = {"name": {"const": function.name}, "parameters": {"$ref": f"#/$defs/{place}"}}
            calls.append(
                {
                    "type": "object",
                    "properties": given,
                    "required": list(given),
                    "additionalProperties": False,
                }
            )
        most = {} if parallel else {"maxItems": 1}
        return {
            "type": "array", "items": {"anyOf": calls}, "minItems": 1, **most, "$defs": schemas,
        }  # fmt: skip
    for tool in tools:
        if tool.function.name == choice.function.name:
            return tool.function.schema_of_call
    raise ApiError(400, f"no tool is named {choice.function.name}", param="tool_choice")


def _moved(schema: Any, place: str) -> Any:
    """A schema that lies at `place` in another: references into itself lead there."""

    def moved(one: dict[str, Any]) -> dict[str, Any]:
        target = one.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            return {**one, "$ref": place + target[1:]}
        return one

    return rewritten(schema, moved)
