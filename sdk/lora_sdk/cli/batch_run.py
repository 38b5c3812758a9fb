"""Runs the lines of a batch that have not ended yet, as many at once as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from lora_host.errors import LoraError
from lora_sdk.cli.prompts import BatchLine

if TYPE_CHECKING:
    from lora_sdk.cli.batch_journal import Journal
    from lora_sdk.engine.engine import Engine
    from lora_sdk.engine.requests import Request
    from lora_sdk.engine.submission import Prompt
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.step.results import Result
    from lora_sdk.text.chat import Message

AHEAD = 2  # requests that wait, for each that runs


class Runner(Protocol):
    """What runs requests. `room`: sequences at once."""

    room: int

    @property
    def lost(self) -> LoraError | None:
        """Why nothing can run any more."""

    def make(self, prompt: Prompt, params: SamplingParams) -> Request:
        """See RequestMaker.request."""

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """See Engine."""

    def start(self, request: Request, on_end: Callable[[], None]) -> Callable[[], None]:
        """Run a request; `on_end` is called in another thread. What cancels it is returned."""

    def confirm(self) -> None:
        """LoraError if requests that have ended may hold wrong tokens. See Engine."""


class EngineRunner:
    """One engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.room = engine.plan.max_sequences
        self.chat_tokens = engine.chat_tokens
        self.confirm = engine.confirm

    @property
    def lost(self) -> LoraError | None:
        """See Runner."""
        return self._engine.lost

    def make(self, prompt: Prompt, params: SamplingParams) -> Request:
        """See Runner."""
        return self._engine.requests.make(prompt, params)

    def start(self, request: Request, on_end: Callable[[], None]) -> Callable[[], None]:
        """See Runner."""
        request.on_end = on_end
        self._engine.requests.start(request)
        return request.cancel


class BatchRun:
    """The lines of one batch; each entry goes to the journal as soon as it is there."""

    def __init__(
        self,
        lines: Sequence[BatchLine],
        journal: Journal,
        described: Callable[[Result], dict[str, Any]],
        progress: Callable[[int, int], object],
    ) -> None:
        """`described`: a result for JSON. `progress` receives lines that have ended, and all."""
        self._lines = lines
        self._journal = journal
        self._described = described
        self._progress = progress
        self._ended: SimpleQueue[tuple[int, Request]] = SimpleQueue()
        self._running: dict[int, Callable[[], None]] = {}

    def refuse(self) -> None:
        """Write the errors of lines that cannot be run."""
        for index, line in enumerate(self._lines):
            if line.error is not None:
                self._keep(index, {"error": str(line.error)})

    def run(self, runner: Runner) -> None:
        """Run the lines that are left, after `refuse`. A line that fails gets an entry with its
        error. LoraError: nothing can run any more, and lines are left."""
        left = self._left()
        more = True
        try:
            while more or self._running:
                while more and len(self._running) < (1 + AHEAD) * runner.room:
                    index = next(left, None)
                    more = index is not None
                    if index is not None:
                        self._start(runner, index)
                if self._running:
                    self._take(runner, *self._ended.get())
        finally:
            for cancel in self._running.values():
                cancel()

    def _left(self) -> Iterator[int]:
        return (index for index in range(len(self._lines)) if index not in self._journal)

    def _start(self, runner: Runner, index: int) -> None:
        line = self._lines[index]
        try:
            prompt = line.prompt
            if prompt is None:
                assert line.messages is not None  # a line has a prompt, messages or an error
                prompt = runner.chat_tokens(line.messages)
            request = runner.make(prompt, line.params)
        except LoraError as error:
            self._keep(index, {"error": str(error)})
            return
        ended = partial(self._ended.put, (index, request))
        self._running[index] = runner.start(request, ended)

    def _take(self, runner: Runner, index: int, request: Request) -> None:
        del self._running[index]
        try:
            values = self._described(request.result())
        except LoraError as error:
            if runner.lost is not None:  # not the line's own
                raise
            values = {"error": str(error)}
        self._keep(index, values)

    def _keep(self, index: int, values: dict[str, Any]) -> None:
        self._journal.add(index, {"index": index, "line": self._lines[index].number, **values})
        self._progress(len(self._journal), len(self._lines))
