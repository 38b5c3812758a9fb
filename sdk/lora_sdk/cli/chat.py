"""`lora chat`: a conversation with an instruction-tuned model."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.adapters import adapter_flags, default_adapter, load_adapters, take_adapters
from lora_sdk.cli.flags import RUN_FLAGS, flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.outcome import say
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.cli.prompts import argument_text
from lora_sdk.cli.run_command import TO_THE_END, to_the_end
from lora_sdk.cli.speculation import speculation_flags, take_speculation
from lora_sdk.opening.options import EngineOptions
from lora_sdk.sampling import SamplingParams

SAMPLING_FLAGS = (
    *("max_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop"),
)
EPILOG = """\b
Examples:
  lora chat --model ~/models/llama --boards 4
  lora chat --model ~/models/llama --system "In one sentence." --temp 0.7

A line is a message. /reset, /stats, /help and /exit are commands. Ctrl-C stops an answer,
Ctrl-D ends. Without a terminal the messages are the lines of standard input."""


@click.command("chat", epilog=EPILOG)
@flags(EngineOptions, *RUN_FLAGS)
@adapter_flags
@speculation_flags
@flags(SamplingParams, *SAMPLING_FLAGS, max_tokens={**TO_THE_END, "default": -1})
@click.option("--system", metavar="TEXT", help="system message at the beginning")
def chat(system: str | None, **options: Any) -> None:
    """Talk to a model that has a chat template."""
    engine_arguments = {name: options.pop(name) for name in RUN_FLAGS}
    adapters, more = take_adapters(options)
    engine_arguments.update(more)
    drafts = take_speculation(options, engine_arguments)
    params = SamplingParams.from_mapping({**to_the_end(options), **default_adapter(adapters)})
    first = None if system is None else argument_text("--system", system)
    _check_template(EngineOptions(**engine_arguments))
    if sys.stdin is None:
        raise RequestError("standard input is closed; expected the messages there")
    # the tokenizer names bytes that are not UTF-8
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]

    from lora_sdk.cli.conversation import Conversation
    from lora_sdk.engine.engine import Engine

    with (
        ProgressBar("loading") as progress,
        Engine(
            progress=progress,
            speculation=drafts.options,
            on_notice=partial(say, "lora chat", "notice"),
            **engine_arguments,
        ) as engine,
    ):
        progress.close()
        for note in load_adapters(engine, adapters):
            show(note, err=True)
        conversation = Conversation(engine, params, first)
        conversation.run()
        engine.confirm()
    if conversation.failed and not sys.stdin.isatty():
        raise SystemExit(1)


def _check_template(options: EngineOptions) -> None:
    """ModelError, before boards open, if the model has no chat template or nothing renders it."""
    from lora_sdk.model.config import load_config
    from lora_sdk.text.chat import check_renderer, find_template
    from lora_sdk.text.tokenizer import Tokenizer

    check_renderer()
    find_template(options.folder, Tokenizer(options.folder, load_config(options.folder).vocabulary))
