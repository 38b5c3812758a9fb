"""/openapi.json and /docs tell what the paths take; paths are there without /v1, too."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest

from lora_sdk import Engine
from lora_sdk.serve.settings import digest
from tests.serve.test_serve_mutations import SEEDS
from tests.served import Served, served

KEY = "k" * 32


@pytest.fixture(scope="module")
def told(server: Served) -> dict[str, Any]:
    got = server.get("/openapi.json")
    assert got.status == 200 and got.body["openapi"] == "3.1.0"
    body: dict[str, Any] = got.body
    return body


def test_every_path_is_told(server: Served, told: dict[str, Any]) -> None:
    for path, methods in told["paths"].items():
        assert list(methods) in (["get"], ["post"])
        got = server.post(path, {}) if "post" in methods else server.get(path.format(name="demo"))
        assert got.status not in (404, 405), path
    assert len(told["paths"]) == 19


@pytest.mark.parametrize(("path", "body"), SEEDS, ids=[f"{i}{s[0]}" for i, s in enumerate(SEEDS)])
def test_what_is_taken_keeps_to_the_schema(
    told: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    """Null stands for a field that is not given, which the schemas do not say."""
    schema = told["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": told["components"]}
    jsonschema.validate(without_null(body), whole)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({name: {"a": object()} for name in body}, whole)


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


def test_the_page_asks_nobody(server: Served, told: dict[str, Any]) -> None:
    page = server.get("/docs")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    for path in told["paths"]:
        assert path in page.body
    found: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Tags().feed(page.body)
    assert not {tag for tag, _ in found} & {"script", "link", "img", "iframe"}
    assert [given["href"] for _, given in found if "href" in given] == ["openapi.json"]
    assert re.search(r"<code>max_tokens</code><td>integer<td>needed", page.body)


def test_docs_can_be_left_out_and_need_no_key() -> None:
    def opened(progress: Any) -> Engine:
        return Engine(progress=progress)

    with served(opened, keys=(digest(KEY),)) as running:
        got = running.get("/openapi.json")
        assert got.status == 200 and got.body["security"] == [{"key": []}]
    with served(opened, docs=False) as running:
        assert running.get("/docs").status == running.get("/openapi.json").status == 404


def test_paths_without_v1(server: Served) -> None:
    ask = {"messages": [{"role": "user", "content": "a"}]}
    assert server.post("/completions", {"prompt": "a", "max_tokens": 1}).status == 200
    for path in ("/chat/completions", "/messages"):
        assert server.post(path, {**ask, "max_tokens": 1}).status == 200, path
    assert server.post("/messages/count_tokens", ask).status == 200
    assert server.post("/responses", {"input": "a", "max_output_tokens": 1}).status == 200
    assert server.get("/models").body["data"][0]["id"] == "demo"
    assert server.get("/models/demo").status == 200
    assert server.post("/messages", {}).body["type"] == "error"  # in Anthropic's form
