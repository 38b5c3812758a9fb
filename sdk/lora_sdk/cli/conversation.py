"""A conversation in the terminal: questions and commands in, streamed answers out."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from lora_host.errors import ModelError, RequestError
from lora_host.naming import counted, did_you_mean
from lora_sdk.cli.outcome import say
from lora_sdk.cli.stopwatch import Stopwatch

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.sampling import SamplingParams

COMMANDS = {
    "/help": "these commands",
    "/reset": "forget the conversation",
    "/stats": "tokens and times of the last answer and of all",
    "/exit": "end, as Ctrl-D",
}
KEYS = "Ctrl-C stops an answer, Ctrl-D ends."


class Conversation:
    """Reads lines from standard input until its end. Each is a command or a user message, whose
    answer is streamed to standard output. The messages so far are the context of the next; where
    they leave too little of it for an answer the oldest are dropped."""

    def __init__(self, engine: Engine, params: SamplingParams, system: str | None) -> None:
        self._engine = engine
        self._params = params
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._first)
        self._terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._last: Stopwatch | None = None
        self._total = Stopwatch()
        self._answers = 0
        self._used = 0  # positions of the conversation
        self.failed = 0  # messages that had no answer

    def run(self) -> None:
        """Hold the conversation. Errors of the boards pass through; those of a question are
        printed, and the conversation goes on without it."""
        if self._terminal:
            with suppress(ImportError):
                import readline  # noqa: F401  line editing and recall in input()
            self._note(f"/help lists the commands. {KEYS}")
        while True:
            try:
                line = input("> " if self._terminal else "").strip()
            except EOFError:
                if self._terminal:
                    print()
                return
            except KeyboardInterrupt:
                if not self._terminal:
                    raise
                print()
                self._note(KEYS)
                continue
            if line == "/exit":
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._ask(line)

    def _command(self, line: str) -> None:
        if line == "/help":
            for name, meaning in COMMANDS.items():
                self._note(f"{name:<8}{meaning}")
            self._note(KEYS)
        elif line == "/reset":
            self._messages = list(self._first)
            self._used = 0
        elif line == "/stats":
            self._statistics()
        else:
            self._error(f"no command {line.split()[0]!r:.40}; {did_you_mean(line, COMMANDS)}")

    def _ask(self, question: str) -> None:
        before = self._messages
        try:
            tokens = self._fitting({"role": "user", "content": question})
            answer = self._answer(tokens)
        except (RequestError, ModelError) as error:
            self._messages = before
            self.failed += 1
            reset = "; /reset forgets the conversation" if len(self._messages) > 1 else ""
            self._error(f"{error}{reset}")
            return
        if answer:
            self._messages.append({"role": "assistant", "content": answer})
        else:  # stopped before it began: a template expects an answer to every question
            self._messages.pop()

    def _fitting(self, question: dict[str, str]) -> list[int]:
        """The prompt's tokens with the question. Messages of before that leave no room for an
        answer, a quarter of the context or -n, are dropped, the oldest turns first."""
        context, most, first = self._engine.context, self._params.max_tokens, len(self._first)
        room = min(context // 4, context if most is None else most)
        kept = [*self._messages, question]
        tokens = self._engine.chat_tokens(kept)
        while len(tokens) > context - room and len(kept) > first + 1:
            del kept[first : first + 2]  # a question and its answer
            tokens = self._engine.chat_tokens(kept)
        dropped = (len(self._messages) + 1 - len(kept)) // 2
        if dropped and len(tokens) < context:
            turns = counted(dropped, "turn")
            self._note(f"the context of {context} positions is full: dropped {turns}, the oldest")
        self._messages = kept
        return tokens

    def _answer(self, tokens: list[int]) -> str:
        """Stream the answer. Ctrl-C ends it; the part that was written is kept."""
        texts: list[str] = []
        self._last = watch = Stopwatch(prompt=len(tokens))
        reason = None
        try:
            for delta in self._engine.stream(tokens, self._params):
                reason = delta.finish_reason
                watch.count(delta.token_id is not None)
                texts.append(delta.text)
                sys.stdout.write(delta.text)
                sys.stdout.flush()
        except KeyboardInterrupt:
            reason = "stopped"
        finally:
            watch.stop()
            self._total.add(watch)
            self._answers += 1
            self._used = watch.prompt + max(0, watch.new - 1)  # the last token is not run
            if texts or reason == "stopped":
                print(flush=True)
        if reason == "length":
            self._note(f"the answer was cut: {self._limit(watch)}")
        return "".join(texts)

    def _limit(self, watch: Stopwatch) -> str:
        """What ended an answer."""
        most, context = self._params.max_tokens, self._engine.context
        if most is not None and watch.new >= most:
            return f"{counted(most, 'token')} is the most that -n allows"
        return f"the context of {context} positions is full; the next message drops what is oldest"

    def _statistics(self) -> None:
        if self._last is None:
            self._note("no answer yet")
            return
        self._note(f"measured, last answer: {self._last.text()}")
        self._note(f"measured, answers so far ({self._answers}): {self._total.text()}")
        if self._engine.speculation is not None:
            for line in self._engine.speculation.lines():
                self._note(f"measured: {line}")
        self._note(f"context: {self._used} of {self._engine.context} positions")

    def _note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _error(self, text: str) -> None:
        say("lora chat", "error", text)
