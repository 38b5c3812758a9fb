"""Chat templates as transformers renders them: the same options, functions and filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import ModelError, RequestError
from lora_sdk.text.chat import check_messages, find_template, render
from lora_sdk.text.tokenizer import Tokenizer
from tests.variant_tokenizer import make_tokenizer

MESSAGES = [
    {"role": "system", "content": "be <b>kind</b> & é"},
    {"role": "user", "content": " hi "},
]
LLAMA2 = (
    "{% set system = messages[0]['content'] %}{% for message in messages[1:] %}"
    "{% if message['role'] != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ bos_token + '[INST] <<SYS>>' + system + message['content'].strip() + eos_token }}"
    "{% endfor %}"
)
BLOCKS = """{%- for m in messages %}
    {%- if m.role == 'stop' %}
        {%- break %}
    {%- endif %}
    {{- m | tojson }}
    {% if loop.last %}
<{{ m.role }}>
    {% endif %}
{%- endfor %}
"""


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    make_tokenizer(400).save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(tmp_path, 400)


def test_special_tokens_and_methods(tokenizer: Tokenizer) -> None:
    text = render(LLAMA2, MESSAGES, tokenizer, add_generation_prompt=True)
    assert text == "<s>[INST] <<SYS>>be <b>kind</b> & éhi</s>"


def test_blocks_are_trimmed_and_json_is_not_escaped(tokenizer: Tokenizer) -> None:
    text = render(BLOCKS, [*MESSAGES, {"role": "stop", "content": ""}], tokenizer, True)
    system = '{"role": "system", "content": "be <b>kind</b> & é"}'
    assert text == system + '\n{"role": "user", "content": " hi "}\n'
    assert render(BLOCKS, MESSAGES, tokenizer, True).endswith("\n<user>\n")


JSON: list[tuple[str, dict[str, Any]]] = [
    ("", {"ensure_ascii": False}),
    ("ensure_ascii=true", {}),
    ("true", {}),
    ("ensure_ascii=False, indent=2", {"ensure_ascii": False, "indent": 2}),
    ("indent='\t'", {"ensure_ascii": False, "indent": "\t"}),
    ("separators=(',', ':')", {"ensure_ascii": False, "separators": (",", ":")}),
    ("sort_keys=true", {"ensure_ascii": False, "sort_keys": True}),
    ("false, 1, (', ', ' : '), true",
     {"ensure_ascii": False, "indent": 1, "separators": (", ", " : "), "sort_keys": True}),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "same"), JSON)
def test_json_has_the_arguments_of_pythons(
    arguments: str, same: dict[str, Any], tokenizer: Tokenizer
) -> None:
    value = {"b": ["<é>", 1.5, None, {"z": True, "a": []}], "a": {}, "role": "x"}
    text = render("{{ messages[0]|tojson(" + arguments + ") }}", [value], tokenizer, True)
    assert text == json.dumps({**value, "b": ["<é>", 1.5, None, {"z": True, "a": []}]}, **same)


def test_generation_is_a_scope_around_its_text(tokenizer: Tokenizer) -> None:
    template = (
        "{% set x = 1 %}{% for m in messages %}\n{% generation %}\n{{ m.content }}{% set x = 2 %}\n"
        "{% endgeneration %}\n{{ x }}{% endfor %}"
    )
    assert render(template, MESSAGES, tokenizer, True) == "be <b>kind</b> & é1 hi 1"


def test_a_template_may_refuse(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="roles must alternate"):
        render(LLAMA2, [*MESSAGES, {"role": "assistant", "content": "x"}], tokenizer, True)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% for",
        "{{ 1 + 'a' }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_hostile_or_broken_template_is_refused_in_one_line(
    template: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(RequestError, match="chat template") as caught:
        render(template, MESSAGES, tokenizer, True)
    assert "\n" not in str(caught.value)


def test_where_a_template_is_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="it is a base model"):
        find_template(tmp_path, tokenizer)
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    for value, found in (("plain", "plain"), (named, "d")):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
        assert find_template(tmp_path, Tokenizer(tmp_path, 400)) == found
    (tmp_path / "chat_template.jinja").write_text("file")
    assert find_template(tmp_path, tokenizer) == "file"


@pytest.mark.parametrize("messages", [[], ["hi"], [{"role": "user"}]])
def test_messages_are_checked(messages: list[object]) -> None:
    with pytest.raises(RequestError):
        check_messages(messages)  # type: ignore[arg-type]
