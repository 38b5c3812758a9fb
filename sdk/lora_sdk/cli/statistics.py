"""Statistics of `lora-run` on stderr: measured on this computer, except for modelled lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_host.board_types import counted_type
from lora_host.naming import counted
from lora_sdk.cli.clock import since_start
from lora_sdk.cli.folding import show
from lora_sdk.cli.laboratory import MISSING, laboratory

if TYPE_CHECKING:
    from lora_host.emulated import Emulated
    from lora_sdk.cli.laboratory import ModelledRun
    from lora_sdk.engine.engine import Engine
    from lora_sdk.kv.kv_statistics import KvUse
    from lora_sdk.spec.resolve import ResolvedSpeculation
    from lora_sdk.step.results import Delta, Result


class Statistics:
    """Times and counts of one run of the program."""

    def __init__(self) -> None:
        self._load_began = time.monotonic()
        self._load_seconds = 0.0
        self._began = 0.0
        self._first_token: float | None = None
        self._prompt_tokens = 0
        self._received = 0  # tokens of a result that is not complete
        self._new_tokens = 0
        self._first_latency = 0.0
        self._results = 0
        self._result: Result | None = None  # the latest
        self._seed = 0
        self._modelled: ModelledRun | None = None
        self._drafts: ResolvedSpeculation | None = None
        self._boards: Emulated | None = None  # when the model was loaded
        self._before: list[int] = []  # their simulated cycles until then

    def loaded(self, engine: Engine, drafts: ResolvedSpeculation) -> None:
        """The model is loaded, and its draft, if any."""
        self._drafts = drafts
        self._began = time.monotonic()
        self._load_seconds = self._began - self._load_began
        self._boards = engine.cluster.emulated
        self._before = self._boards.simulated_cycles() if self._boards is not None else []

    def model(self, engine: Engine) -> None:
        """Also report the modelled time on real boards of all steps from now on, if the laboratory
        is there."""
        lab = laboratory()
        self._modelled = None if lab is None else lab.time_engine(engine)

    def trace(self, file: Path, quiet: bool) -> None:
        """Write the modelled times of the boards' steps to a trace file."""
        assert self._modelled is not None  # `model` came first, and the laboratory is there
        dropped = self._modelled.write_trace(file)
        if not quiet:
            self._line(f"modelled: trace in {file}, {dropped} events dropped")

    def received(self, delta: Delta) -> None:
        """A delta was received."""
        if delta.token_id is None:
            return
        self._received += 1
        if self._first_token is None:
            self._first_token = since_start()

    def add(self, result: Result) -> None:
        """A request is finished."""
        self._results += 1
        self._result = result
        self._received = 0
        self._prompt_tokens += result.prompt_tokens
        self._new_tokens += result.completion_tokens
        self._first_latency = max(self._first_latency, result.timing.first_token)
        self._seed = result.seed

    def so_far(self) -> str:
        """What a run that is cut off has done."""
        seconds = time.monotonic() - self._began
        done = f"after {counted(self._received + self._new_tokens, 'new token')} in {seconds:.2f} s"
        return done + (f", {counted(self._results, 'result')} complete" if self._results else "")

    def described(self, result: Result) -> dict[str, Any]:
        """A result for JSON, with the draft and the values expected from the table."""
        return described(result, self._drafts)

    def write(self, engine: Engine, details: bool) -> None:
        """Write one line, or several with `details`."""
        seconds = time.monotonic() - self._began
        boards = counted_type(engine.cluster.size, engine.cluster.board_type)
        kernels = f", {engine.cluster.kernels_name} kernels" if engine.cluster.kernels_name else ""
        first = ""
        if self._first_token is not None:
            first = f", first token {self._first_token:.2f} s after the program's start"
        self._line(
            f"measured: {self._prompt_tokens} prompt and {self._new_tokens} new tokens in "
            f"{seconds:.2f} s ({self._new_tokens / max(seconds, 1e-9):.1f} new tokens/s){first}; "
            f"{boards}{kernels}{self._ended(engine)}"
        )
        if engine.prefill_use is not None and engine.prefill_use.fast:
            self._line("prefill: fast, so the text may differ from the boards' own")
        if details:
            self._details(engine)

    def _ended(self, engine: Engine) -> str:
        """What cut the text of a lone result; nothing for one that ended by itself."""
        result = self._result
        if self._results != 1 or result is None or result.finish_reason != "length":
            return ""
        full = result.prompt_tokens + len(result.token_ids) > engine.context
        if full:
            return f"; cut by a full context of {engine.context} positions"
        return f"; cut at {counted(len(result.token_ids), 'token')} (-n)"

    def _details(self, engine: Engine) -> None:
        plan = engine.plan
        stats = engine.cluster.stats()
        mebibytes = plan.weight_bytes / (1 << 20)
        self._line(f"boards: {engine.cluster.why}")
        kernels = engine.cluster.emulated  # real boards use no kernels of this computer
        if kernels and kernels.variant:
            self._line(
                f"kernels: {kernels.kernels_name}, variant {kernels.variant}, "
                f"{kernels.threads} threads"
            )
        if kernels and kernels.simulated:
            self._line(kernels.simulated)
        for line in self._cycles(engine):
            self._line(line)
        self._line(
            f"measured: loading {mebibytes:.1f} MiB of weights took {self._load_seconds:.2f} s"
        )
        self._line(
            f"measured: longest wait for a first token {self._first_latency:.3f} s, "
            f"{stats.steps} steps, {engine.redone_steps} redone, {stats.frames_dropped} frames "
            f"dropped; {self._results} request{'s' * (self._results != 1)}, last seed {self._seed}"
        )
        if engine.scrubbed is not None:
            self._line(f"measured: {engine.scrubbed.line()}")
        for line in _memory_errors(engine):
            self._line(line)
        self._line(
            f"planned: context {plan.context} positions, {plan.max_sequences} sequences, "
            f"{plan.row_limit} rows per step"
        )
        for line in self._drafts.lines() if self._drafts is not None else ():
            self._line(line)
        if engine.speculation is not None:
            for line in engine.speculation.lines():
                self._line(f"measured: {line}")
        use = engine.prefill_use
        if use is not None:
            self._line(
                f"prefill: {use.prompts} prompt{'s' * (use.prompts != 1)} of {use.tokens} tokens "
                f"computed by {use.worker}"
            )
        if self._modelled is not None:
            for line in self._modelled.lines():
                self._line(line)
            if use is not None and use.prompts:
                self._line(f"not modelled: what {use.worker} computed, and its way to the boards")
            for line in _left_out(engine.kv_use):
                self._line(line)
        else:
            self._line(MISSING)

    def _cycles(self, engine: Engine) -> Iterator[str]:
        """What simulated cards took since the model was loaded, or since they were opened again;
        nothing for other boards."""
        boards = engine.cluster.emulated
        cycles = boards.simulated_cycles() if boards is not None else []
        if not cycles:
            return
        tokens, steps = max(1, self._new_tokens), max(1, engine.cluster.stats().steps)
        same = boards is self._boards
        before = self._before if same else [0] * len(cycles)
        most = max(now - old for now, old in zip(cycles, before, strict=True))
        clock = engine.plan.overlay.clock_hz
        yield (
            f"simulated: {most} cycles of the busiest card ({most / clock * 1e3:.3f} ms at "
            f"{clock / 1e6:.0f} MHz) in {steps} steps and sums of weights: {most // tokens} a "
            "new token"
        )
        assert boards is not None and boards.cards is not None
        cards, modelled = boards.cards, None
        if self._modelled is not None and same:
            modelled = self._modelled.card_cycles(cards.lanes, cards.latency)
        if modelled:
            yield (
                f"modelled: {modelled:.0f} cycles of the simulated card "
                f"({modelled / most - 1:+.1%}) in these steps, without sums of weights"
            )

    @staticmethod
    def _line(text: str) -> None:
        show(text, err=True)


def _memory_errors(engine: Engine) -> Iterator[str]:
    """A line a board whose ECC has met errors."""
    for board in range(engine.cluster.size):
        counts = engine.cluster.ecc(board)
        for what, banks in (
            ("corrected", counts.corrected if counts else {}),
            ("not corrected", counts.uncorrected if counts else {}),
        ):
            if banks:
                named = ", ".join(
                    f"{engine.plan.board.bank_name(bank)} {count}" for bank, count in banks.items()
                )
                yield f"measured: board {board} memory errors {what} by ECC: {named}"


def _left_out(kv: KvUse) -> Iterator[str]:
    """What the modelled times of a run have too much or too little of."""
    if kv.cached_tokens:
        yield (
            "modelled: attention to pages that sequences share is charged to each of them; boards "
            "that read them once take less"
        )
    if kv.host is not None and kv.host.kept + kv.host.found:
        yield (
            f"not modelled: {kv.host.kept} KV pages brought to this computer and {kv.host.found} "
            "written back"
        )


def described(result: Result, drafts: ResolvedSpeculation | None) -> dict[str, Any]:
    """A result for JSON, with the draft and the values expected from the table."""
    values = result.as_dict()
    if drafts is not None and drafts.options is not None:
        values["speculation"] = {**drafts.as_dict(), **values.get("speculation", {})}
    return values
