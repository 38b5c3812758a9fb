"""Chat templates turn a list of messages into the prompt of an instruction-tuned model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, RequestError
from lora_host.regular_file import read_regular
from lora_sdk.text.tokenizer import Tokenizer
from lora_sdk.text.tokenizer_files import one_line

Message = Mapping[str, Any]
MAX_TEMPLATE_BYTES = 1 << 20


def find_template(folder: Path, tokenizer: Tokenizer) -> str:
    """The chat template of a model folder. ModelError if it has none."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return _read(file)
    template = tokenizer.config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = (t for t in template if isinstance(t, Mapping) and t.get("name") == "default")
        template = next(named, {}).get("template")
    if isinstance(template, str):
        return template
    raise ModelError(
        f"{folder} has no chat template: it is a base model; give it a plain prompt, or a template"
    )


def _read(file: Path) -> str:
    try:
        return read_regular(file, MAX_TEMPLATE_BYTES).decode("utf-8")
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{file}: not UTF-8 at byte {error.start}; convert it") from None


def render(
    template: str,
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    add_generation_prompt: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The prompt text of the messages, rendered with `template` in a bounded sandbox. `tools`: JSON
    schemas of functions, as templates know them. RequestError: the template refuses them, fails, or
    costs too much."""
    try:
        from lora_sdk.text.template import render_bounded
    except ImportError:
        raise ModelError(
            "chat templates need the jinja2 package; install it, or lora-fpga[chat]"
        ) from None
    special = {
        name: _content(value)
        for name, value in tokenizer.config.items()
        if name.endswith("_token") and isinstance(value, (str, Mapping))
    }
    try:
        return render_bounded(
            template,
            {
                "messages": list(messages),
                "add_generation_prompt": add_generation_prompt,
                "tools": None if tools is None else list(tools),
                **special,
            },
        )
    except Exception as error:  # a template's expressions may fail in any way
        raise RequestError(f"chat template refused the messages: {one_line(error)}") from None


def check_messages(messages: Sequence[Message]) -> None:
    """RequestError if a message is not an object with role and content."""
    if not messages:
        raise RequestError("no messages; expected a list of {'role', 'content'}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise RequestError(f"message {index} is {message!r}; expected 'role' and 'content'")


def _content(value: str | Mapping[str, Any]) -> str:
    return value if isinstance(value, str) else str(value.get("content", ""))
