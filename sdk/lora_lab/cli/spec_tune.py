"""`lora lab spec tune` and `collect`: measure a draft, search its trees, write the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_sdk.cli.flags import flags
from lora_sdk.cli.folding import show as say
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import PROPOSERS
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_lab.spec_tuning.acceptance_file import Measured
    from lora_lab.spec_tuning.collect import Progress
    from lora_lab.spec_tuning.measure import TuneRequest
    from lora_sdk.spec.table import SpeculationTable

LOOKUP = "lookup"
MIN_LARGEST, LARGEST = 6, 64

_MEASURE_OPTIONS = (
    click.option("--text", "texts", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                 help="UTF-8 text that prompts are cut from; may be repeated"),
    click.option("--proposer", type=click.Choice(PROPOSERS),
                 help="kind of draft [from the folder]"),
    flags(SamplingParams, "temperature",
          temperature={"help": "temperature at which the model continues the prompts"}),
    click.option("--prompts", default=256, show_default=True,
                 help="max number of prompts to search on, and of held-out prompts"),
    flags(EngineOptions, "context", context={"unset": "the model's"}),
)  # fmt: skip


def _measure_options(function: Any) -> Any:
    for option in reversed(_MEASURE_OPTIONS):
        function = option(function)
    return function


COLLECT = """\b
Examples:
  lora lab spec collect MODEL DRAFT --text FILE -o acceptance.json
"""


@click.command("collect", epilog=COLLECT)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("draft")
@_measure_options
@click.option("-o", "--output", required=True, type=OUTPUT, metavar="FILE",
              help="npz file to write")  # fmt: skip
def collect(
    model: Path,
    draft: str,
    texts: tuple[Path, ...],
    proposer: str | None,
    temperature: float,
    prompts: int,
    context: int | None,
    output: Path,
) -> None:
    """Measure the acceptance of DRAFT on MODEL's continuations of a text, for `lora lab spec tune`.

    It takes minutes and does not depend on boards. Half of the prompts are held out."""
    from lora_lab.spec_tuning.acceptance_file import save_measured

    request = _request(model, draft, proposer, temperature, prompts, context)
    measured = _measured(request, texts, None)
    save_measured(output, measured)
    rounds = len(measured.search.ranks), len(measured.held_out.ranks)
    say(f"wrote {output}: {rounds[0]} positions to search on, {rounds[1]} held out")


TUNE = """\b
Examples:
  lora lab spec tune MODEL DRAFT --acceptance FILE --boards 1 --boards 4
  lora lab spec tune MODEL DRAFT --text FILE --objective wall
"""


@click.command("tune", epilog=TUNE)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("draft")
@_measure_options
@click.option("--acceptance", type=click.Path(path_type=Path), metavar="FILE",
              help="file of lora lab spec collect, instead of --text")  # fmt: skip
@click.option("--objective", type=click.Choice(["modelled", "wall"]), default="modelled",
              show_default=True, help="modelled time of boards, or wall clock here")  # fmt: skip
@click.option("--board", default="u280", show_default=True, help="u280, u55c or v80")
@click.option("--boards", "counts", multiple=True, type=int, metavar="N",
              help="number of boards; may be repeated [1]")  # fmt: skip
@flags(EngineOptions, "overlay")
@click.option("--largest", default=LARGEST, show_default=True, help="rows of the largest tree")
@click.option("-o", "--output", type=OUTPUT, metavar="FILE",
              help="table to write or add to [speculation.json in MODEL]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def tune(
    model: Path,
    draft: str,
    texts: tuple[Path, ...],
    proposer: str | None,
    temperature: float,
    prompts: int,
    context: int | None,
    acceptance: Path | None,
    objective: str,
    board: str,
    counts: tuple[int, ...],
    overlay: str | None,
    largest: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose the best tree for DRAFT with MODEL at each context, or none, and write the table.

    DRAFT is a folder with a draft model or an EAGLE-3 head, or the word lookup."""
    from lora_lab.cli.spec_report import as_dict, reports
    from lora_lab.spec_tuning.tuning import BoardSetup, modelled_tables, wall_tables
    from lora_sdk.spec.table import FILE_NAME, put_tables

    request = _request(model, draft, proposer, temperature, prompts, context)
    if not MIN_LARGEST <= largest <= 256:  # with fewer, no size is left to test the fit
        raise RequestError(f"--largest {largest}: expected {MIN_LARGEST} to 256 rows")
    if objective == "wall" and not texts:
        raise RequestError("--objective wall decodes prompts; give --text")
    path = output or model / FILE_NAME
    setups = [BoardSetup(board, overlay, count) for count in counts or (1,)]
    measured = _measured(request, texts, acceptance)
    tables: list[SpeculationTable] = []
    if objective == "modelled":
        tables = modelled_tables(request, measured, setups, largest, path)
    else:
        with _progress_bars() as bars:
            tables = wall_tables(request, measured, setups, largest, path, texts, bars)
    put_tables(path, model.resolve().name, tables)
    if as_json:
        click.echo(json.dumps([as_dict(table) for table in tables], indent=2))
    else:
        say(reports(tables))
        click.echo(f"wrote {path}", err=True)


def _request(
    model: Path,
    draft: str,
    proposer: str | None,
    temperature: float,
    prompts: int,
    context: int | None,
) -> TuneRequest:
    """The request, with all checks that need no model."""
    from lora_lab.spec_tuning.collect import MIN_PROMPTS
    from lora_lab.spec_tuning.measure import TuneRequest
    from lora_sdk.spec.resolve import kind_of

    if prompts < MIN_PROMPTS:
        raise RequestError(f"--prompts {prompts}: expected at least {MIN_PROMPTS}")
    if not model.is_dir():
        raise RequestError(f"model {model}: no such folder; expected a Hugging Face folder")
    if draft == LOOKUP:
        if proposer not in (None, LOOKUP):
            raise RequestError(f"draft {LOOKUP} is not a folder; --proposer {proposer} needs one")
        return TuneRequest(model, LOOKUP, None, temperature, prompts, context)
    folder = Path(draft)
    if proposer == LOOKUP or not folder.is_dir():
        raise RequestError(
            f"draft {draft}: expected the folder of a draft model or head, or the word {LOOKUP}"
        )
    return TuneRequest(model, proposer or kind_of(folder), folder, temperature, prompts, context)


def _measured(request: TuneRequest, texts: Sequence[Path], acceptance: Path | None) -> Measured:
    """Acceptance, loaded from a file or measured now."""
    from lora_lab.spec_tuning.acceptance_file import load_measured
    from lora_lab.spec_tuning.measure import measure

    if acceptance is None:
        if not texts:
            raise RequestError(
                "no text to measure on; give --text FILE that no model was trained on"
            )
        with _progress_bars() as show:
            return measure(request, texts, show)
    measured = load_measured(acceptance)
    draft = None if request.draft is None else request.draft.resolve().name
    found = (measured.model, measured.proposer, measured.draft)
    requested = (request.model.resolve().name, request.proposer, draft)
    if found != requested:
        raise RequestError(f"{acceptance} is for {found}; expected {requested}")
    return measured


@contextmanager
def _progress_bars() -> Iterator[Callable[[str], Progress]]:
    """Yields a function that opens a progress bar and closes the previous one."""
    bars: list[ProgressBar] = []

    def show(what: str) -> Progress:
        while bars:
            bars.pop().close()
        bars.append(ProgressBar(what, unit="text"))
        return bars[-1]

    try:
        yield show
    finally:
        while bars:
            bars.pop().close()
