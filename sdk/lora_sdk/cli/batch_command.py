"""`lora batch`: a file of prompts into a file of results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import LoraError
from lora_sdk.cli.adapters import adapter_flags, default_adapter, load_adapters, take_adapters
from lora_sdk.cli.batch_journal import Journal, check_apart
from lora_sdk.cli.batch_run import BatchRun, EngineRunner, Runner
from lora_sdk.cli.flags import RUN_FLAGS, flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.outcome import say
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.cli.prompts import BatchLine, name_of, read_batch
from lora_sdk.cli.ray_flags import RayChoice, ray_cluster, ray_flags, take_ray
from lora_sdk.cli.run_command import SAMPLING_FLAGS, TO_THE_END, to_the_end
from lora_sdk.cli.speculation import speculation_flags, take_speculation
from lora_sdk.cli.statistics import described
from lora_sdk.opening.options import EngineOptions
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_sdk.cli.adapters import NamedAdapter, TakesAdapters
    from lora_sdk.spec.resolve import ResolvedSpeculation

NAME = "lora batch"
EXAMPLES = """\b
Examples:
  lora batch prompts.jsonl results.jsonl
  lora batch prompts.jsonl results.jsonl --ray --replicas 4 --boards 2

A line of IN is one of lora-run --batch, and so is a line of OUT, in the same
order. Until all lines have ended, results are in OUT.partial: after Ctrl-C or a
failure the same command goes on there, and computes no line twice.
Exit code: 0 done, 1 a line failed, 2 refused, 130 Ctrl-C."""


@click.command("batch", epilog=EXAMPLES)
@click.argument("prompts", metavar="IN|-")
@click.argument("out", metavar="OUT", type=OUTPUT)
@flags(EngineOptions, *RUN_FLAGS)
@adapter_flags
@speculation_flags
@flags(SamplingParams, *SAMPLING_FLAGS, max_tokens=TO_THE_END)
@ray_flags
@click.option("-q", "--quiet", is_flag=True, help="no progress and no counts")
def batch(prompts: str, out: Path, quiet: bool, **options: Any) -> int:
    """Continue the prompts of a file, on boards of this computer or on Ray nodes."""
    if prompts != "-":
        check_apart(Path(prompts), out)
    choice = take_ray(options)
    arguments = {name: options.pop(name) for name in RUN_FLAGS}
    adapters, more = take_adapters(options)
    arguments.update(more)
    drafts = take_speculation(options, arguments)
    sampling = {**to_the_end(options), **default_adapter(adapters)}
    lines = read_batch(prompts, sampling)
    facts = _facts(lines, arguments, adapters)
    with Journal(out, facts, len(lines)) as journal, ProgressBar("lines", "", quiet) as progress:
        before = len(journal)
        run = BatchRun(lines, journal, partial(described, drafts=drafts), progress)
        run.refuse()
        try:
            if len(journal) < len(lines):
                with _runner(choice, arguments, drafts, adapters, quiet) as runner:
                    run.run(runner)
                    runner.confirm()
        except BaseException:
            if not quiet:
                _say_left(journal, lines, out)
            raise
        first = journal.first_error()
        failed = journal.finish()
    if not quiet:
        say(NAME, "done", f"{len(lines)} lines in {out}, {before} of them from before")
    if failed:
        raise LoraError(
            f"{failed} of {len(lines)} lines of {name_of(prompts)} failed; the first is {first}"
        )
    return 0


@contextmanager
def _runner(
    choice: RayChoice,
    arguments: Mapping[str, Any],
    drafts: ResolvedSpeculation,
    adapters: Sequence[NamedAdapter],
    quiet: bool,
) -> Iterator[Runner]:
    """What runs the lines."""
    notice = partial(say, NAME, "notice")
    with ProgressBar("loading", quiet=quiet) as progress:

        def load(engine: TakesAdapters) -> None:
            progress.close()
            notes = load_adapters(engine, adapters)
            if notes and not quiet:
                show("\n".join(notes), err=True)

        if choice.wanted:
            with (
                ray_cluster(choice, arguments, f"{NAME} --ray") as open_replicas,
                open_replicas.runner(drafts.options, progress, load, notice) as runner,
            ):
                yield runner
            return

        from lora_sdk.engine.engine import Engine

        with Engine(
            progress=progress, speculation=drafts.options, on_notice=notice, **arguments
        ) as engine:
            load(engine)
            yield EngineRunner(engine)


def _facts(
    lines: Sequence[BatchLine], arguments: Mapping[str, Any], adapters: Sequence[NamedAdapter]
) -> dict[str, object]:
    """What decides the results. Prompts and sampling parameters by their digest."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(repr(line).encode("utf-8", "surrogatepass"))
    return {
        "prompts": digest.hexdigest(),
        "model": str(EngineOptions(**arguments).folder.resolve()),
        **{name: arguments[name] for name in ("context", "kv", "prefill_mode")},
        "adapters": [[one.name, str(one.path.resolve()), one.scale] for one in adapters],
    }


def _say_left(journal: Journal, lines: Sequence[BatchLine], out: Path) -> None:
    done = f"{len(journal)} of {len(lines)} lines have ended and are in {journal.path}"
    say(NAME, "stopped", f"{done}; the same command goes on there, {out} comes with the last")
