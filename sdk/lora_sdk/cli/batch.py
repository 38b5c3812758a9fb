"""Runs the lines of `lora-run --batch` as one batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lora_host.errors import LoraError
from lora_sdk.cli.batch_text import entry_text
from lora_sdk.cli.prompts import BatchLine

if TYPE_CHECKING:
    from lora_sdk.engine.requests import OnDelta
    from lora_sdk.engine.submission import OnError, OnResult, Prompt
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.step.results import Result
    from lora_sdk.text.chat import Message


class Generates(Protocol):
    """An engine, or several. Names and meanings are those of Engine."""

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        on_delta: OnDelta | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> object: ...
    def chat_tokens(self, messages: Sequence[Message]) -> list[int]: ...


class Counts(Protocol):
    """What counts the results of a batch."""

    def add(self, result: Result) -> None:
        """A request is finished."""

    def described(self, result: Result) -> dict[str, Any]:
        """A result for JSON."""


class Batch:
    """The lines of a batch file and their entries on stdout: one JSON line each, in the order of
    the lines, as soon as possible; texts on a terminal."""

    def __init__(self, lines: Sequence[BatchLine], name: str, as_json: bool = False) -> None:
        """`name`: the file's, for messages. `as_json`: JSON on a terminal too."""
        self._texts = not as_json and sys.stdout.isatty()
        self._lines = lines
        self._name = name
        self._ended: dict[int, dict[str, Any]] = {}
        self._following = 0
        self._errors: dict[int, LoraError] = {}

    @property
    def runnable(self) -> bool:
        """Whether a line can be run, as far as is known without a model."""
        return any(line.error is None for line in self._lines)

    def refuse(self) -> None:
        """Write the errors of lines that cannot be run."""
        for index, line in enumerate(self._lines):
            if line.error is not None:
                self._fail(index, line.error)

    def run(self, engine: Generates, statistics: Counts) -> None:
        """Run the lines, after `refuse`. A line that fails gets an entry with its error; the others
        go on."""
        prompts = self._prompts(engine)
        places = list(prompts)

        def write(place: int, result: Result) -> None:
            statistics.add(result)
            self._end(places[place], statistics.described(result))

        try:
            if prompts:
                engine.generate(
                    list(prompts.values()),
                    [self._lines[index].params for index in places],
                    on_result=write,
                    on_error=lambda place, error: self._fail(places[place], error),
                )
        finally:  # if the batch is cut off, later lines may have finished
            for index in sorted(self._ended):
                self._write(self._ended[index])

    def check(self) -> None:
        """LoraError if lines failed."""
        if self._errors:
            first = min(self._errors)
            raise LoraError(
                f"{len(self._errors)} of {len(self._lines)} lines of {self._name} failed; the first"
                f" is line {self._lines[first].number}: {self._errors[first]}"
            )

    def _prompts(self, engine: Generates) -> dict[int, Prompt]:
        prompts: dict[int, Prompt] = {}
        for index, line in enumerate(self._lines):
            if line.error is not None:
                continue
            try:
                prompts[index] = line.prompt if line.prompt is not None else _chat(engine, line)
            except LoraError as error:
                self._fail(index, error)
        return prompts

    def _fail(self, index: int, error: LoraError) -> None:
        self._errors[index] = error
        self._end(index, {"error": str(error)})

    def _end(self, index: int, values: dict[str, Any]) -> None:
        self._ended[index] = {"index": index, "line": self._lines[index].number, **values}
        while self._following in self._ended:
            self._write(self._ended.pop(self._following))
            self._following += 1

    def _write(self, values: Mapping[str, Any]) -> None:
        shown = entry_text(values) if self._texts else json.dumps(values, ensure_ascii=False)
        sys.stdout.write(shown + "\n")
        sys.stdout.flush()


def _chat(engine: Generates, line: BatchLine) -> list[int]:
    assert line.messages is not None  # a line has a prompt, messages or an error
    return engine.chat_tokens(line.messages)
