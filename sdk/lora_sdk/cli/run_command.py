"""The command `lora-run` and its options."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_host.locale_text import utf8_text
from lora_sdk import __version__
from lora_sdk.arguments.option import options_of
from lora_sdk.cli.adapters import (
    adapter_flags,
    default_adapter,
    load_adapters,
    take_adapters,
)
from lora_sdk.cli.batch import Batch
from lora_sdk.cli.flags import RUN_FLAGS, flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.grouped_help import GroupedCommand
from lora_sdk.cli.laboratory import MISSING, laboratory
from lora_sdk.cli.outcome import say
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.cli.prompts import argument_text, name_of, one_source, read_batch, read_prompt
from lora_sdk.cli.speculation import speculation_flags, take_speculation
from lora_sdk.cli.statistics import Statistics
from lora_sdk.opening.options import EngineOptions
from lora_sdk.sampling import BeamSearchParams, SamplingParams, params_from_mapping
from lora_sdk.sampling.beam_params import BEAM_FIELDS

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.step.results import Delta

SAMPLING_FLAGS = (
    *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("seed", "stop", "ignore_eos", "logprobs"),
)
BEAM_FLAGS: dict[str, dict[str, Any]] = {
    name: {"default": None, "unset": str(options_of(BeamSearchParams)[name].default)}
    for name in BEAM_FIELDS
}
BEAM_FLAGS["beam_width"]["unset"] = "no beam search"
TO_THE_END = {"help": "max number of new tokens; -1: until the context is full", "low": -1}
WITH_JSON = {"help": "with --json: log probabilities, and those of the N most likely tokens"}

EPILOG = """\b
Examples:
  lora-run --boards 4 prompt.txt
  lora-run -p "def add(a, b):" -n 40
  echo "Once upon a time" | lora-run --temp 0.8 --top-p 0.95 --seed 7
  lora-run --model ~/models/gpt2 --device emu:u280 --device emu:u280 FILE
  lora-run --chat --model ~/models/llama -p "What is an FPGA?"
  lora-run --batch prompts.jsonl > results.jsonl
  lora-run --model ~/models/llama --draft ~/models/small --speculative 4 FILE

Only the text goes to stdout. Exit code: 0 done, 1 failed, 2 refused,
130 Ctrl-C. After the text the boards sum their weights: if some have changed,
the text may be wrong, an error names the place, and the exit code is 1.
A line of --batch is a JSON string, or an object with prompt, tokens or
messages and sampling parameters. Every result is one JSON line, in the same
order, and a text on a terminal without --json; that of a line that failed has
its error, and the exit code is 1."""


GROUPS = {
    "Used most": (
        *("model", "boards", "prompt", "max_tokens", "temperature"),
        *("top_p", "seed", "chat", "as_json", "details"),
    ),
    "Model": (
        *("context", "kv", "max_sequences", "prefix_cache", "kv_offload", "kv_offload_dir"),
        *("prefill", "prefill_mode", "prefill_model", "gguf_weights"),
    ),
    "Boards": ("devices", "cluster_file", "stages", "overlay", "kernels", "threads", "greedy"),
    "Sampling": (
        *("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("min_tokens", "stop", "ignore_eos", *BEAM_FIELDS),
    ),
    "Speculation": ("speculative", "draft", "proposer", "spec_objective"),
    "Adapters": ("adapters", "max_adapters", "adapter_mode"),
    "Reliability": ("recovery", "check_weights", "spares", "daemon_wait"),
    "Input and output": (*("batch", "echo", "logprobs", "trace_file", "quiet", "version", "help"),),
}
"""Of the help."""


@click.command(
    "lora-run", cls=GroupedCommand, groups=GROUPS, epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.argument("source", metavar="[PROMPT_FILE|-]", required=False)
@click.option("-p", "--prompt", metavar="TEXT", help="prompt text instead of a file")
@click.option("--batch", metavar="FILE", help="JSON lines of prompts, run as one batch")
@flags(EngineOptions, *RUN_FLAGS)
@adapter_flags
@speculation_flags
@flags(SamplingParams, *SAMPLING_FLAGS, max_tokens=TO_THE_END, logprobs=WITH_JSON)
@flags(BeamSearchParams, *BEAM_FIELDS, **BEAM_FLAGS)
@click.option("--chat", is_flag=True, help="the prompt is a user message: apply the chat template")
@click.option("--echo", is_flag=True, help="write the prompt before its continuation")
@click.option("--json", "as_json", is_flag=True, help="write one JSON object instead of text")
@click.option("--stats", "details", is_flag=True, help="more than one line of statistics")
@click.option(
    "--trace", "trace_file", type=OUTPUT, metavar="FILE", help="modelled times as a Perfetto trace"
)
@click.option("-q", "--quiet", is_flag=True, help="no progress and no statistics")
@click.version_option(__version__, message="%(prog)s %(version)s")
def lora_run(
    source: str | None,
    prompt: str | None,
    batch: str | None,
    chat: bool,
    echo: bool,
    as_json: bool,
    details: bool,
    trace_file: Path | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Continue a prompt with a model on FPGA boards. Without boards they are emulated."""
    source = one_source(prompt, source, batch)
    _check_output(options, batch=batch is not None, chat=chat, echo=echo, as_json=as_json)
    engine_arguments = {name: options.pop(name) for name in RUN_FLAGS}
    adapters, more = take_adapters(options)
    engine_arguments.update(more)
    drafts = take_speculation(options, engine_arguments)
    sampling = {**_sampling(options), **default_adapter(adapters)}
    params = params_from_mapping(sampling)
    lines = (
        Batch(read_batch(batch, sampling), name_of(batch), as_json) if batch is not None else None
    )
    text = ""
    if prompt is not None:
        text = argument_text("-p", prompt)
    elif source is not None:
        text = read_prompt(source)
    if lines is not None:
        lines.refuse()
        if not lines.runnable:
            lines.check()

    if trace_file is not None and laboratory() is None:
        raise RequestError(f"--trace: {MISSING}")

    from lora_sdk.engine.engine import Engine

    statistics = Statistics()
    with (
        ProgressBar("loading", quiet=quiet) as progress,
        Engine(
            progress=progress,
            speculation=drafts.options,
            on_notice=partial(say, "lora-run", "notice"),
            **engine_arguments,
        ) as engine,
    ):
        progress.close()
        notes = load_adapters(engine, adapters)
        if notes and not quiet:
            show("\n".join(notes), err=True)
        statistics.loaded(engine, drafts)
        if trace_file is not None or (details and not quiet):
            statistics.model(engine)
        try:
            if lines is not None:
                lines.run(engine, statistics)
            else:
                _run_one(engine, text, params, statistics, chat=chat, echo=echo, as_json=as_json)
        except KeyboardInterrupt:
            if not quiet:
                say("lora-run", "interrupted", statistics.so_far())
            raise
        if not quiet:
            statistics.write(engine, details)
        if trace_file is not None:
            statistics.trace(trace_file, quiet)
        engine.confirm()  # the text is out: its statistics stay as they are
    if lines is not None:
        lines.check()
    return 0


def _check_output(
    options: dict[str, Any], *, batch: bool, chat: bool, echo: bool, as_json: bool
) -> None:
    """RequestError for a flag that would have no effect."""
    if batch and (chat or echo):
        raise RequestError(
            f"--{'chat' if chat else 'echo'} is for one prompt; a line of --batch has messages for "
            "chat, and its result is JSON"
        )
    if echo and as_json:
        raise RequestError("--echo is for text; with --json the prompt is in the object")
    if options["logprobs"] is not None and not (as_json or batch):
        raise RequestError("--logprobs needs --json: text output cannot hold them")


def to_the_end(options: dict[str, Any]) -> dict[str, object]:
    """Flags as sampling parameters: max_tokens of -1 is None, `stop` is UTF-8."""
    last = None if options["max_tokens"] == -1 else options["max_tokens"]
    return {**options, "max_tokens": last, "stop": [utf8_text(stop) for stop in options["stop"]]}


def _sampling(options: dict[str, Any]) -> dict[str, object]:
    """Flags as sampling parameters. RequestError for flags of beam search without --beams."""
    beams = {name: options[name] for name in BEAM_FIELDS if options[name] is not None}
    if beams and "beam_width" not in beams:
        raise RequestError(f"--{next(iter(beams)).replace('_', '-')} needs --beams")
    sampling = {n: v for n, v in options.items() if n not in BEAM_FIELDS}
    return to_the_end({**sampling, **beams})


def _run_one(
    engine: Engine,
    text: str,
    params: SamplingParams,
    statistics: Statistics,
    *,
    chat: bool,
    echo: bool,
    as_json: bool,
) -> None:
    prompt: str | list[int] = text
    if chat:
        prompt = engine.chat_tokens([{"role": "user", "content": text}])
    if echo:
        sys.stdout.write(text)
    ended_line = not echo or text.endswith("\n")

    def show(delta: Delta) -> None:
        nonlocal ended_line
        statistics.received(delta)
        if not as_json and delta.text:
            ended_line = delta.text.endswith("\n")  # first: Ctrl-C may come behind the flush
            sys.stdout.write(delta.text)
            sys.stdout.flush()

    try:
        result = engine.generate(prompt, params, on_delta=show)
    finally:
        if not as_json and not ended_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
    assert not isinstance(result, list)  # a single prompt
    statistics.add(result)
    if as_json:
        _write_json(statistics.described(result))


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
