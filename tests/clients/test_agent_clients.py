"""Agents and Anthropic's client in loops of several turns: their tools are called, what they gave
goes back, and typed answers are theirs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from lora_sdk import Engine
from lora_sdk.serve.settings import digest
from tests.clients.test_client_libraries import Line
from tests.clients.test_evaluation_clients import available
from tests.serve.test_serve_tools import PARAMETERS, TEMPLATES
from tests.served import Served, chat_model, eventually, served

pytestmark = pytest.mark.agents
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # which goes to the network
KEY = "k" * 32
TURNS = 3


class Heat(BaseModel):
    """What the tool takes."""

    model_config = ConfigDict(extra="forbid")
    x: int = Field(ge=0, le=99)
    unit: Literal["C", "F"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = chat_model(tmp_path_factory.mktemp("agents"), TEMPLATES["hermes"])
    with served(
        lambda progress: Engine(model, progress=progress), strict=True, keys=(digest(KEY),)
    ) as running:
        yield running
        assert eventually(running.settled)


@pytest.mark.parametrize("stream", [False, True])
def test_pydantic_ai_makes_nested_answers(
    server: Served, stream: bool, request: pytest.FixtureRequest
) -> None:
    available(request, "pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key=KEY)
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        taken: list[Heat] = []
        agent = Agent(
            kind("demo", provider=provider), output_type=Line,
            model_settings={"max_tokens": 120, "tool_choice": "auto", "parallel_tool_calls": False},
        )  # fmt: skip

        @agent.tool_plain
        def heat(given: Heat, taken: list[Heat] = taken) -> str:
            """Heats."""
            taken.append(given)
            return "done"

        history: Any = None
        for turn in range(TURNS):
            settings: Any = {"seed": turn} if kind is OpenAIChatModel else {}
            run = _streamed if stream else _whole
            output, history = run(agent, f"Line {turn}.", history, settings)
            assert isinstance(output, Line)
        assert len(history) > 2 * TURNS


def _whole(agent: Any, text: str, history: Any, settings: Any) -> tuple[Any, Any]:
    got = agent.run_sync(text, message_history=history, model_settings=settings)
    return got.output, got.all_messages()


def _streamed(agent: Any, text: str, history: Any, settings: Any) -> tuple[Any, Any]:
    async def ask() -> tuple[Any, Any]:
        fields = {"message_history": history, "model_settings": settings}
        async with agent.run_stream(text, **fields) as got:
            return await got.get_output(), got.all_messages()

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["responses", "chat"])
def test_openai_agents_call_tools(
    server: Served, kind: str, request: pytest.FixtureRequest
) -> None:
    available(request, "agents")
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
    )
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    model = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}[kind]
    taken: list[int] = []

    @function_tool
    def heat(x: int, unit: Literal["C", "F"]) -> str:
        """Heats."""
        taken.append(x)
        return f"{len(taken)} degrees"

    agent = Agent(  # ends with what the tool gave: free text of this model has no end
        name="oven", instructions="Heat it.", tools=[heat], model=model("demo", client),
        tool_use_behavior="stop_on_first_tool",
        model_settings=ModelSettings(
            tool_choice="required", max_tokens=90, parallel_tool_calls=False
        ),
    )  # fmt: skip
    history: Any = "Heat it."
    for turn in range(1, TURNS + 1):
        got = Runner.run_sync(agent, history)
        assert len(taken) == turn and got.final_output == f"{turn} degrees"
        history = [*got.to_input_list(), {"role": "user", "content": "More."}]
    typed = Agent(
        name="line", model=model("demo", client), output_type=Line,
        model_settings=ModelSettings(max_tokens=120),
    )  # fmt: skip
    assert isinstance(Runner.run_sync(typed, "A line.").final_output, Line)


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_client_calls_tools(
    server: Served, stream: bool, request: pytest.FixtureRequest
) -> None:
    available(request, "anthropic")
    import anthropic

    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)
    tools: Any = [{"name": "heat", "description": "Heats.", "input_schema": PARAMETERS}]
    history: list[Any] = [{"role": "user", "content": "Heat it."}]
    for turn in range(TURNS):
        fields: dict[str, Any] = {
            "model": "demo", "max_tokens": 90, "messages": history, "tools": tools,
            "system": [{"type": "text", "text": "Heat.", "cache_control": {"type": "ephemeral"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "extra_body": {"seed": turn},
        }  # fmt: skip
        if stream:
            with client.messages.stream(**fields) as events:
                got: Any = events.get_final_message()
        else:
            got = client.messages.create(**fields)
        (call,) = got.content
        assert call.type == "tool_use" and set(call.input) == {"x", "unit"}
        assert got.stop_reason == "tool_use" and got.usage.output_tokens > 0
        result = {"type": "tool_result", "tool_use_id": call.id, "content": f"{turn} degrees"}
        history += [
            {"role": "assistant", "content": got.content}, {"role": "user", "content": [result]}
        ]  # fmt: skip
    count = client.messages.count_tokens(model="demo", messages=history, tools=tools)
    last = client.messages.create(model="demo", max_tokens=8, messages=history, tools=tools)
    used = last.usage
    assert used.input_tokens + (used.cache_read_input_tokens or 0) == count.input_tokens
    assert last.content[0].type == "text" and last.stop_reason in ("max_tokens", "end_turn")


def test_anthropics_client_knows_errors(server: Served, request: pytest.FixtureRequest) -> None:
    available(request, "anthropic")
    import anthropic

    ask: Any = {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}
    wrong = anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        wrong.messages.create(**ask)
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**ask, "model": "none"})
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(**{**ask, "max_tokens": 0})
