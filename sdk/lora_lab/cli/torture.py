"""`lora lab torture`: a campaign of faults."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lora_host.errors import RequestError
from lora_host.interrupt import ended_as_by_ctrl_c
from lora_host.regular_file import read_regular
from lora_host.writing import writing
from lora_sdk.cli.finite_number import FiniteNumber
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.outcome import EXIT_INTERRUPTED
from lora_sdk.cli.output_file import OUTPUT
from lora_sdk.cli.progress import ProgressBar

if TYPE_CHECKING:
    from lora_lab.torture.campaign import Verdict
    from lora_lab.torture.report import Report

EXAMPLES = """\b
Examples:
  lora lab torture --runs 1000
  lora lab torture --runs 100000 --seed 7 --jobs 2 --report torture.md
  lora lab torture --runs 50000 --seed 7 --from 50000 --json
  lora lab torture --replay failed/run-1234.json
  lora lab torture --target host --runs 100
  lora lab torture --kinds
  lora lab torture --soak 7200 --fault-every 10 --report soak.md

Exit code: 0 all runs ended as they must, 1 one did not, 2 refused, 130 Ctrl-C or SIGTERM (the
report of the runs so far is written)."""
LARGEST_REPLAY = 1 << 16  # bytes
LONGEST = 1e7  # seconds


@click.command("torture", epilog=EXAMPLES)
@click.option("--runs", type=click.IntRange(1, 10_000_000), default=200, show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="all runs follow from it"
)
@click.option(
    "--from", "first", type=click.IntRange(0), default=0, show_default=True, metavar="RUN",
    help="number of the first run: shares of a campaign, or its continuation",
)  # fmt: skip
@click.option(
    "--target", type=click.Choice(("emu", "host", "xrt", "slash", "boardd", "worker", "fleet")),
    default="emu", show_default=True,
    help="emu: faults of emulated boards; host: of the engine's process, its files and limits; "
    "xrt, slash, boardd: of processes and networks around boards behind XRT's emulation, the mock "
    "server for vrtd, board daemons; worker, fleet: of the board daemon that computes prompts; "
    "some seconds a run",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--report", type=OUTPUT, metavar="FILE", help="write a Markdown report")
@click.option(
    "--failures", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="write a replay file of each failed run, with as few faults as fail",
)  # fmt: skip
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="do the run of this file"
)
@click.option(
    "--soak", type=FiniteNumber(1, LONGEST), metavar="SECONDS",
    help="mixed requests for so long instead, with a fault now and then: latency, memory and "
    "descriptors by quarter",
)  # fmt: skip
@click.option(
    "--fault-every", type=FiniteNumber(0, LONGEST), default=10.0, show_default=True,
    metavar="SECONDS",
    help="mean time from a fault of a soak to the next; 0: none",
)  # fmt: skip
@click.option("--kinds", "list_kinds", is_flag=True, help="print the table of faults")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def torture(
    runs: int,
    seed: int,
    first: int,
    target: str,
    jobs: int,
    report: Path | None,
    failures: Path | None,
    replay: Path | None,
    soak: float | None,
    fault_every: float,
    list_kinds: bool,
    as_json: bool,
) -> int:
    """Inject faults into emulated boards at seeded moments, and judge how each run ends.

    A run must end with the undisturbed text, or with one error that names the board and the cause
    that were injected; in time, and with nothing left behind (docs/torture.md)."""
    if list_kinds:
        from lora_lab.torture.table import host_table, rows, table

        click.echo(
            json.dumps(rows(), indent=2) if as_json else for_people(f"{table()}\n\n{host_table()}")
        )
        return 0
    if replay is not None:
        return _replay(replay, as_json)
    if soak is not None:
        return _soak(soak, seed, fault_every, report, as_json)
    from lora_lab.torture.jobs import verdicts
    from lora_lab.torture.report import Report

    if failures is not None:
        failures.mkdir(parents=True, exist_ok=True)
    found = Report(seed, first, first, target=target)
    began = time.monotonic()
    interrupted = False
    with (
        ended_as_by_ctrl_c(),
        ProgressBar("runs", unit="run") as progress,
        closing(verdicts(seed, first, runs, jobs, target)) as all_of_them,
    ):
        try:
            for verdict in all_of_them:
                found.add(verdict)
                progress(found.runs, runs)
                if verdict.problems and failures is not None:
                    _write_replay(failures, verdict)
        except KeyboardInterrupt:
            interrupted = True
    found.seconds = time.monotonic() - began
    if report is not None:
        _write(report, found.markdown())
    click.echo(
        json.dumps(found.as_dict(), indent=2) if as_json else for_people(_summary(found.markdown()))
    )
    if interrupted:
        click.echo(_rest(found, runs), err=True)
        return EXIT_INTERRUPTED
    return int(found.failed > 0)


def _write_replay(folder: Path, verdict: Verdict) -> None:
    smallest = verdict.smallest or verdict.run
    path = folder / f"run-{verdict.run.number}.json"
    _write(path, json.dumps(smallest.as_dict(), indent=2))


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text + "\n")


def _rest(found: Report, runs: int) -> str:
    """What remains after Ctrl-C."""
    from lora_lab.torture.faults import EMULATED

    target = "" if found.target == EMULATED else f"--target {found.target} "
    return (
        f"interrupted after {found.runs} of {runs} runs; the others: lora lab torture {target}"
        f"--seed {found.seed} --from {found.next} --runs {runs - found.runs}"
    )


def _soak(seconds: float, seed: int, every: float, report: Path | None, as_json: bool) -> int:
    import logging

    from lora_lab.torture.soak import Soak

    logging.getLogger("lora_sdk.recovery").setLevel(logging.CRITICAL)  # they are counted
    with ended_as_by_ctrl_c(), ProgressBar("soak", unit="s") as progress:
        found = Soak(seconds, seed, every, progress=progress).run()
    if report is not None:
        _write(report, found.markdown())
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else for_people(found.markdown()))
    return int(found.failed > 0)


def _summary(markdown: str) -> str:
    return "\n".join(line for line in markdown.splitlines() if line and not line.startswith("|"))


def _replay(path: Path, as_json: bool) -> int:
    from lora_lab.torture.jobs import replayed
    from lora_lab.torture.replay import run_from

    try:
        values = json.loads(read_regular(path, LARGEST_REPLAY))
    except OSError as error:
        raise RequestError(
            f"{path}: {error.strerror or error}; expected a replay file, as --failures writes it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: no replay file: {error}") from None
    if not isinstance(values, dict):
        raise RequestError(f"{path}: a list or value, expected an object with a run")
    run = run_from(values)
    with ended_as_by_ctrl_c():
        verdict = replayed(run)
    if as_json:
        found = {"run": run.as_dict(), "problems": list(verdict.problems)}
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{run}: {'; '.join(verdict.problems) or 'ended as it must'}")
    return int(bool(verdict.problems))
