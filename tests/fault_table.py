"""Faults in each situation on two boards: each request ends in the tokens it would have had.

`python -m tests.fault_table` measures all and writes the table into docs/recovery.md. A further
fault is a row of VARIANTS, a further situation an entry of SITUATIONS, a transport of PLACES.
Processes that end or stop are tests/process_faults.py's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lora_host import abi
from lora_host.errors import TransportError
from lora_host.vrtd_mock.process import MockServer
from lora_sdk import Engine, Result, SamplingParams
from tests.fault_xrt import environment as xrt_environment
from tests.fault_xrt import xrt
from tests.processes import environment
from tests.recovery_rig import (
    FAULTS,
    Disturbed,
    Folders,
    folders_at,
    opened,
    speculation,
    write_folders,
)
from tests.scrub_rig import flip

PAGE = Path(__file__).parents[1] / "docs" / "recovery.md"
BEGIN, END = "<!-- measured faults -->", "<!-- end of measured faults -->"
LIMIT = 30.0  # seconds of a cell: far beyond what a busy machine needs
PROMPT = [(7 * i) % 200 + 3 for i in range(40)]
LONG = [(3 * i) % 200 + 3 for i in range(150)]
BOARDS = 2


Fault = Callable[..., None]
"""Sets a fault of board 1, by its kind and up to three numbers."""


@contextmanager
def emulated(folders: Folders, **options: Any) -> Iterator[tuple[Engine, Fault]]:
    """Boards of this process."""
    with opened(folders, BOARDS, **options) as engine:
        boards = engine.cluster.emulated
        assert boards is not None
        yield engine, lambda *fault: boards.fault(1, *fault)


@contextmanager
def slash(folders: Folders, **options: Any) -> Iterator[tuple[Engine, Fault]]:
    """Boards behind the mock server for vrtd, whose clock runs ten times as fast."""
    with (
        tempfile.TemporaryDirectory(prefix="lora-locks-") as locks,
        MockServer(BOARDS, ["--speed", "10"]) as server,
        patch.dict(os.environ, LORA_LOCK_FOLDER=locks, LORA_VRTD_SOCKET=str(server.socket)),
        opened(folders, None, devices=server.uris, **options) as engine,
    ):

        def fault(kind: int, *more: int) -> None:
            numbers = (1, kind, *more, 0, 0, 0)[:5]
            server.command("fault " + " ".join(map(str, numbers)))

        yield engine, fault


PLACES = {"emu": emulated, "xrt": xrt, "slash": slash}


def plant_fault(name: str) -> Callable[[Engine, Fault], None]:
    """Plants a fault of the rig on board 1, which a reset heals."""
    kind, *more = FAULTS[name]
    return lambda _, fault: fault(kind | abi.FAULT_UNTIL_RESET, *more)


def flip_list(engine: Engine, _: Fault) -> None:
    """A bit of a command in board 1's list."""
    plan = engine.plan.boards[1]
    bank, at = engine.cluster.overlay.control_bank, plan.control.list_offset + 256 + 70
    (byte,) = engine.cluster.read(1, bank, at, 1)
    engine.cluster.write(1, bank, at, bytes([byte ^ 1]))


def flip_weight(engine: Engine, _: Fault) -> None:
    """A bit of board 1's weights, which changes tokens."""
    flip(engine)


VARIANTS: dict[str, Callable[[Engine, Fault], None]] = {
    **{name: plant_fault(name) for name in FAULTS},
    "flipped list": flip_list,
    "flipped weight": flip_weight,
}

# Seconds that the host may wait for boards from a fault to the request's end, as it asked for them.
# In emulation that is the boards' own time, so a busy machine adds nothing. 1.1 s of each are the
# links' reset; then what finds the fault (csrc/src/timeouts.c), twice where the step runs again
# first.
AT_ONCE, BY_WATCHDOG, BY_STEP = 2.0, 8.0, 10.0
BOUNDS = {
    "link down": BY_WATCHDOG,
    "endless flips": AT_ONCE,
    "MPU stuck": BY_WATCHDOG,
    "VFU stuck": BY_WATCHDOG,
    "Router stuck": BY_WATCHDOG,
    "DMA stuck": BY_WATCHDOG,
    "completion lost": AT_ONCE,
    "done lost": BY_STEP,
    "firmware dead": BY_STEP,
    "blocks misfiled": AT_ONCE,
    "blocks garbled": AT_ONCE,
    "flipped list": AT_ONCE,
    "flipped weight": 1.0,  # nothing is reset
}


BUSY = 10.0  # more, where boards run in other processes: steps then take the machine's time


def _tokens(
    engine: Engine, prompt: list[int], tokens: int, adapter: str | None = None
) -> list[int]:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, adapter=adapter)
    result = engine.generate(prompt, params)
    assert isinstance(result, Result)
    return list(result.token_ids)


def idle(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """Before a request."""
    plant()
    return _tokens(engine, PROMPT, 8)


def prefill(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """Before the second step of a prompt of three."""
    with Disturbed(engine, {1: plant}):
        return _tokens(engine, LONG, 4)


def decode(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """Before a step of two sequences."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with Disturbed(engine, {6: plant}):
        results = engine.generate([PROMPT, PROMPT[:9]], params)
    assert isinstance(results, list)
    return [token for result in results for token in result.token_ids]


def generate(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """After the eleventh token of a text that the boards generate by themselves, in two runs."""
    seen: list[object] = []

    def told(delta: object) -> None:
        seen.append(delta)
        if len(seen) == 11:
            plant()

    params = SamplingParams(max_tokens=100, ignore_eos=True)
    result = engine.generate(PROMPT, params, on_delta=told)
    assert isinstance(result, Result)
    return list(result.token_ids)


def verify(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """Before a step that verifies a tree."""
    with Disturbed(engine, {4: plant}):
        return _tokens(engine, PROMPT, 24)


def adapter_load(engine: Engine, plant: Callable[[], None]) -> list[int]:
    """Before an adapter takes another's slot."""
    _tokens(engine, PROMPT, 2, "a")
    plant()
    return _tokens(engine, PROMPT, 8, "b")


SITUATIONS = {
    "idle": idle,
    "prefill": prefill,
    "decode": decode,
    "boards' own loop": generate,
    "verify": verify,
    "adapter load": adapter_load,
}


# Boards that run ahead of the host may have ended the text before the fault.
RUNS_AHEAD = "boards' own loop"


@dataclass(frozen=True)
class Outcome:
    """`seconds`: of the recoveries, measured; None where none was needed. `waited`: see BOUNDS."""

    same: bool
    left_out: bool
    seconds: float | None
    waited: float
    error: str = ""  # with the place of weights, where there were tokens of damaged ones

    def check(self, place: str, variant: str, situation: str) -> None:
        """AssertionError unless it ended as it must, within its bound."""
        limit = BOUNDS[variant] + BUSY * (place != "emu")
        assert self.waited <= limit, (place, variant, situation, self)
        if self.error:
            assert variant == "flipped weight" and situation != "prefill", self
            assert "board 1 bank" in self.error and "layer.1.down" in self.error, self
        assert (self.same or self.error) and not self.left_out, self
        assert situation == RUNS_AHEAD if self.seconds is None else self.seconds < LIMIT, self

    def __str__(self) -> str:
        if self.error:
            return f"error, {self.seconds:.2f}"
        return "none" if self.seconds is None else f"{self.seconds:.2f}"


def outcome(engine: Engine, fault: Fault, situation: str, variant: str, want: list[int]) -> Outcome:
    """One cell."""
    before, waited = engine._recovery.count, engine.cluster.stats().waited_us
    error = ""
    try:
        found = SITUATIONS[situation](engine, lambda: VARIANTS[variant](engine, fault))
        engine.confirm()
    except TransportError as raised:
        found, error = [], str(raised)
    fault(abi.FAULT_NONE)
    count = engine._recovery.count - before
    records = list(engine.recoveries)[-count:] if count else []
    seconds = sum(record.seconds for record in records) if records else None
    left_out = any(record.left_out for record in records)
    waited = engine.cluster.stats().waited_us - waited
    return Outcome(found == want, left_out, seconds, waited / 1e6, error)


def options_of(folders: Folders, situation: str) -> dict[str, Any]:
    """The engine's, for a situation."""
    options: dict[str, Any] = {"max_adapters": 1}
    if situation == "verify":
        options["speculation"] = speculation(folders, "lookup")
    return options


def measured(
    folders: Folders, place: str, situation: str, names: Sequence[str]
) -> dict[str, Outcome]:
    """The faults in one situation, one after another on the same boards."""
    with PLACES[place](folders, **options_of(folders, situation)) as (engine, fault):
        want = SITUATIONS[situation](engine, lambda: None)
        return {name: outcome(engine, fault, situation, name, want) for name in names}


def column(
    folders: Folders, place: str, situation: str, names: Sequence[str]
) -> dict[str, Outcome]:
    """The same, in a process of its own where the place needs one."""
    if place != "xrt":
        return measured(folders, place, situation, names)
    with xrt_environment() as around:
        said = subprocess.run(
            [sys.executable, "-m", "tests.fault_table", situation, str(folders.root), *names],
            env={**around.variables, "PYTHONPATH": environment()["PYTHONPATH"]},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            start_new_session=True,  # XRT ends whole process groups
            timeout=LIMIT * len(names),
        ).stdout
    return {name: Outcome(*facts) for name, facts in json.loads(said).items()}


def table(
    rows: Mapping[str, str], columns: Sequence[str], places: Sequence[str], cell: Callable[..., str]
) -> str:
    """The page's lines. `rows`: names and bounds. `cell`: of place, row and column."""
    lines = [
        "| fault | bound | " + " | ".join(columns) + " |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for row, bound in rows.items():
        cells = ("; ".join(cell(place, row, one) for place in places) for one in columns)
        lines.append(f"| {row} | {bound} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_between(begin: str, end: str, text: str) -> None:
    """Replace the page's lines between these two."""
    head, rest = PAGE.read_text().split(begin)
    _, tail = rest.split(end)
    PAGE.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> None:
    """Measure and write the page; with arguments: one situation inside XRT's environment."""
    if sys.argv[1:]:
        situation, root, *names = sys.argv[1:]
        found = measured(folders_at(Path(root)), "xrt", situation, names)
        print(json.dumps({name: astuple(one) for name, one in found.items()}))
        return
    columns: dict[tuple[str, str], dict[str, Outcome]] = {}
    with tempfile.TemporaryDirectory() as root:
        folders = write_folders(Path(root))
        for situation in SITUATIONS:
            for place in PLACES:
                columns[place, situation] = column(folders, place, situation, tuple(VARIANTS))
                for name, one in columns[place, situation].items():
                    print(situation, place, name, one, f"{one.waited:.2f}", file=sys.stderr)
                    one.check(place, name, situation)
    rows = {name: f"{BOUNDS[name]:g}" for name in VARIANTS}
    cells = table(rows, tuple(SITUATIONS), tuple(PLACES), lambda p, v, s: str(columns[p, s][v]))
    write_between(BEGIN, END, cells)


if __name__ == "__main__":
    main()
