"""Chat templates turn a list of messages into the prompt of an instruction-tuned model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, RequestError
from lora_host.naming import install
from lora_host.regular_file import read_regular
from lora_sdk.text.tokenizer import Tokenizer
from lora_sdk.text.tokenizer_files import one_line

Message = Mapping[str, Any]
MAX_TEMPLATE_BYTES = 1 << 20


def find_template(folder: Path, tokenizer: Tokenizer, tools: bool = False) -> str:
    """The chat template of a model folder; with `tools` the one named for them, if it has one.
    ModelError if it has none."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return read_template(file)
    template = tokenizer.config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {str(t.get("name")): t.get("template") for t in template if isinstance(t, Mapping)}
        template = (named.get("tool_use") if tools else None) or named.get("default")
    if isinstance(template, str):
        return template
    raise ModelError(
        f"{folder} has no chat template: it is a base model; give it a plain prompt, or a template"
    )


def read_template(file: Path) -> str:
    """The template in a file. ModelError."""
    try:
        return read_regular(file, MAX_TEMPLATE_BYTES).decode("utf-8")
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{file}: not UTF-8 at byte {error.start}; convert it") from None


def check_renderer() -> None:
    """ModelError where the package that renders templates is not installed."""
    if find_spec("jinja2") is None:
        raise ModelError(f"chat templates need the package jinja2; {install('chat')}")


def render(
    template: str,
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    add_generation_prompt: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    continue_final: bool = False,
) -> str:
    """The prompt text of the messages, rendered with `template` in a bounded sandbox, as
    transformers' apply_chat_template does it. `tools`: JSON schemas of functions, as templates know
    them. `variables`: further ones of the template. With `continue_final` the text ends where the
    last message's content does. RequestError: the template refuses them, fails, or costs too
    much."""
    check_renderer()
    from lora_sdk.text.template import render_bounded

    special = {
        name: _content(value)
        for name, value in tokenizer.config.items()
        if name.endswith("_token") and isinstance(value, (str, Mapping))
    }
    given = [_as_template(message) for message in messages]
    last = _mark(given) if continue_final else ""
    try:
        text = render_bounded(
            template,
            {
                "documents": None,
                **special,
                **(variables or {}),
                "messages": given,
                "add_generation_prompt": add_generation_prompt,
                "tools": None if tools is None else list(tools),
            },
        )
    except Exception as error:  # a template's expressions may fail in any way
        raise RequestError(f"chat template refused the messages: {one_line(error)}") from None
    return _cut(text, last) if continue_final else text


_REASONING = ("reasoning_content", "thinking", "reasoning")  # names of the same, the first counts


def _as_template(message: Message) -> dict[str, Any]:
    """A message without nulls, which templates would write. What an assistant thought has the names
    that templates read, whatever its own."""
    given = {name: value for name, value in message.items() if value is not None}
    thought = next((given[name] for name in _REASONING if name in given), None)
    if thought is None:
        return given
    return {"thinking": thought, **given, "reasoning_content": thought}


_MARK = "CONTINUE_FINAL_MESSAGE_TAG "  # the space tells whether the template strips


def _mark(messages: list[dict[str, Any]]) -> str:
    """Mark where the last message's content ends; the content."""
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise RequestError("continue_final_message: the last message has no text to continue")
    messages[-1]["content"] = content + _MARK
    return content


def _cut(text: str, content: str) -> str:
    """The text before the mark; without white space where the template took that of the content."""
    at = text.rfind(_MARK.strip())
    if at < 0 or content.strip() not in text:
        raise RequestError(
            "continue_final_message: the chat template does not write the last message as it is"
        )
    return text[:at] if text[at:].startswith(_MARK) else text[:at].rstrip()


def check_messages(messages: Sequence[Message]) -> None:
    """RequestError if a message is not an object with role and content."""
    if not messages:
        raise RequestError("no messages; expected a list of {'role', 'content'}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise RequestError(f"message {index} is {message!r}; expected 'role' and 'content'")


def _content(value: str | Mapping[str, Any]) -> str:
    return value if isinstance(value, str) else str(value.get("content", ""))
