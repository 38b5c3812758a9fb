"""Client libraries in loops of several turns: what they add to messages comes back, calls and typed
answers are theirs, and they know the server's errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field

from lora_sdk import Engine
from tests.clients.test_evaluation_clients import available
from tests.serve.test_serve_tools import PARAMETERS, TEMPLATES
from tests.served import Served, chat_model, eventually, served

pytestmark = pytest.mark.clients
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request to the network at its import
QUESTION = {"role": "user", "content": "Heat it."}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": name, "description": "Heats.", "parameters": PARAMETERS},
    }
    for name in ("heat", "cool")
]
LONG = [{"role": "user", "content": "import os\n" * 100}]


class Point(BaseModel):
    """A typed answer, short whatever a model of random text says."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["a", "b"]
    x: int = Field(ge=0, le=99)


class Line(BaseModel):
    """One that holds others."""

    model_config = ConfigDict(extra="forbid")
    begin: Point
    end: Point


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = chat_model(tmp_path_factory.mktemp("model"), TEMPLATES["hermes"])
    with served(
        lambda progress: Engine(model, progress=progress, embeddings=True), strict=True
    ) as running:
        yield running
        assert eventually(running.settled)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Of a shorter context."""
    model = chat_model(tmp_path_factory.mktemp("small"))
    with served(lambda progress: Engine(model, context=128, progress=progress)) as running:
        yield running


@pytest.fixture
def client(server: Served) -> OpenAI:
    return server.client()


def answered(call_id: str, turn: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"{turn} degrees"}


def test_openai_parses_a_typed_answer(client: OpenAI) -> None:
    history: list[Any] = [QUESTION]
    for turn in range(3):
        got = client.chat.completions.parse(
            model="demo", messages=history, response_format=Line, max_tokens=90, seed=turn
        )
        message = got.choices[0].message
        assert isinstance(message.parsed, Line)
        history += [message, {"role": "user", "content": "Another."}]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_calls_tools(client: OpenAI, stream: bool) -> None:
    history: list[Any] = [QUESTION]
    for turn in range(3):
        fields: dict[str, Any] = {
            "model": "demo", "messages": history, "tools": TOOLS, "tool_choice": "required",
            "seed": turn, "max_tokens": 90, "parallel_tool_calls": False,
        }  # fmt: skip
        if stream:
            with client.chat.completions.stream(**fields) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**fields).choices[0].message
        (call,) = message.tool_calls or ()
        assert set(json.loads(call.function.arguments)) == {"x", "unit"}
        history += [message, answered(call.id, turn)]
    last = client.chat.completions.create(
        model="demo", messages=history, tools=TOOLS, tool_choice="none", max_tokens=8
    )
    assert last.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_openais_responses_call_tools(client: OpenAI, stream: bool) -> None:
    tools: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
    history: list[Any] = [QUESTION]
    for turn in range(3):
        fields: dict[str, Any] = {
            "model": "demo", "input": history, "tools": tools, "tool_choice": "required",
            "parallel_tool_calls": False, "max_output_tokens": 90, "extra_body": {"seed": turn},
        }  # fmt: skip
        if stream:
            with client.responses.stream(**fields) as events:
                got: Any = events.get_final_response()
        else:
            got = client.responses.create(**fields)
        (call,) = got.output
        assert set(json.loads(call.arguments)) == {"x", "unit"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": f"{turn}"}
        history += [call, result]
    last = client.responses.parse(
        model="demo", input=history, tools=tools, tool_choice="none", text_format=Line,
        max_output_tokens=120,
    )  # fmt: skip
    assert isinstance(last.output_parsed, Line)


def test_embeddings_of_libraries(client: OpenAI, request: pytest.FixtureRequest) -> None:
    """Each with its own form of the input."""
    available(request, "litellm")
    available(request, "langchain_openai")
    import litellm
    from langchain_openai import OpenAIEmbeddings

    texts = ["import os\n", "def add(a, b):\n"]
    expected = [one.embedding for one in client.embeddings.create(model="demo", input=texts).data]
    url = str(client.base_url)
    given = litellm.embedding(
        model="openai/demo", input=texts, api_base=url, api_key="none", encoding_format="float"
    )
    assert [one["embedding"] for one in given.data] == expected
    chain = OpenAIEmbeddings(
        model="demo", base_url=url, api_key="none", check_embedding_ctx_length=False
    )
    assert chain.embed_documents(texts) == expected
    assert chain.embed_query(texts[0]) == expected[0]


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_calls_tools(server: Served, stream: bool, request: pytest.FixtureRequest) -> None:
    available(request, "litellm")
    import litellm

    history: list[Any] = [QUESTION]
    for turn in range(3):
        got = litellm.completion(
            model="openai/demo", api_base=f"{server.url}/v1", api_key="none", messages=history,
            tools=TOOLS, tool_choice="required", seed=turn, max_tokens=90, stream=stream,
            parallel_tool_calls=False,
        )  # fmt: skip
        if stream:
            got = litellm.stream_chunk_builder(list(got), messages=history)
        message = got.choices[0].message
        (call,) = message.tool_calls
        assert set(json.loads(call.function.arguments)) == {"x", "unit"}
        history += [message, answered(call.id, turn)]
    last = litellm.completion(
        model="openai/demo", api_base=f"{server.url}/v1", api_key="none", messages=history,
        max_tokens=8,
    )  # fmt: skip
    assert last.choices[0].message.content


def test_litellm_falls_back_to_a_longer_context(
    server: Served, small: Served, request: pytest.FixtureRequest
) -> None:
    available(request, "litellm")
    import litellm

    def at(name: str, where: Served) -> dict[str, Any]:
        given = {"model": "openai/demo", "api_base": f"{where.url}/v1", "api_key": "none"}
        return {"model_name": name, "litellm_params": given}

    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(
            messages=LONG, max_tokens=8, num_retries=0, **at("", small)["litellm_params"]
        )
    router = litellm.Router(
        model_list=[at("short", small), at("long", server)],
        context_window_fallbacks=[{"short": ["long"]}], num_retries=0,
    )  # fmt: skip
    got = router.completion(model="short", messages=LONG, max_tokens=8)
    assert got.usage.completion_tokens == 8 and got.usage.prompt_tokens > 128


@pytest.mark.parametrize("stream", [False, True])
def test_langchain_calls_tools(
    server: Served, stream: bool, request: pytest.FixtureRequest
) -> None:
    available(request, "langchain_openai")
    from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model="demo", base_url=f"{server.url}/v1", api_key="none", max_tokens=90, max_retries=0
    )
    bound = chat.bind_tools(TOOLS, tool_choice="required", parallel_tool_calls=False)
    history: list[Any] = [HumanMessage("Heat it.")]
    for turn in range(3):
        if stream:
            said: Any = None
            for chunk in bound.stream(history):
                assert isinstance(chunk, AIMessageChunk)
                said = chunk if said is None else said + chunk
        else:
            said = bound.invoke(history)
        (call,) = said.tool_calls
        assert call["name"] in ("heat", "cool") and set(call["args"]) == {"x", "unit"}
        history += [said, ToolMessage(f"{turn} degrees", tool_call_id=call["id"])]
    assert chat.invoke(history).content
    typed = chat.with_structured_output(Line, method="json_schema").invoke("A line.")
    assert isinstance(typed, Line)


def test_instructor_makes_typed_answers(client: OpenAI, request: pytest.FixtureRequest) -> None:
    available(request, "instructor")
    import instructor

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        made = instructor.from_openai(client, mode=mode)
        history: list[Any] = [{"role": "user", "content": "A line."}]
        for turn in range(2):
            got, raw = made.chat.completions.create_with_completion(
                model="demo", messages=history, response_model=Line, max_tokens=90, seed=turn,
                max_retries=0,
            )  # fmt: skip
            assert isinstance(got, Line)
            message = raw.choices[0].message
            history.append(message.model_dump())
            for call in message.tool_calls or ():
                history.append(answered(call.id, turn))
            history.append({"role": "user", "content": "Another."})
