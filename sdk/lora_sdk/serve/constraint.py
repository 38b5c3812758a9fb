"""Grammars kept while decoding: which tokens may come next, by llguidance.

What a grammar may cost is bounded by llguidance's own counts, not by time, so the same request has
the same outcome on a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from lora_host.errors import one_line
from lora_sdk.serve.allocator import give_back, in_use
from lora_sdk.serve.errors import ApiError, GrammarError
from lora_sdk.text.ends import end_tokens

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.text.tokenizer import Tokenizer

T = TypeVar("T")

LIMITS = LLParserLimits(
    max_items_in_row=1000,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=100_000,
    step_max_items=10_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
# A chain of rules is compiled by recursion; 1000 of them overflow a stack of the usual 8 MiB.
_STACK = 256 << 20
_CACHED = 16  # grammars
_CACHED_BYTES = 64 << 20
_LEAST_BYTES, _UNKNOWN_BYTES = 1 << 18, 8 << 20  # of one; where nobody counts them
_NO_TOKEN = "NoExtensionBias"  # llguidance's name for a mask without a token
_FAR = 16  # tokens; beyond what speculation takes back


class Model(Protocol):
    """What a grammar needs of an engine."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


class Compiler:
    """Makes constraints of grammars for one engine. Methods belong to the event loop's thread."""

    def __init__(self, engine: Model) -> None:
        self._engine = engine
        self._tokenizer: LLTokenizer | None = None
        self._known: OrderedDict[str, tuple[LLMatcher, int]] = OrderedDict()  # and its bytes
        self._turn = asyncio.Lock()

    async def constraint(self, field: str, grammar: str, sequences: int) -> Constraint:
        """`allowed_tokens` of a request of so many sequences. ApiError 400 names the field."""
        async with self._turn:
            found = self._known.get(grammar)
            if found is None:
                found = await asyncio.wrap_future(_in_deep_thread(self._compiled, grammar))
            matcher = found[0]
            if matcher.is_error():
                why = _why(matcher, "it allows no text")
                raise ApiError(400, f"{field}: {why:.300}", param=field)
            self._keep(grammar, found)
        return Constraint(matcher, sequences, grammar, field)

    def compiled(self, grammar: str, sequences: int) -> Constraint:
        """The same without an event loop, of a grammar that was taken before. Of one thread."""
        found = self._known.get(grammar)
        if found is None:
            found = _in_deep_thread(self._compiled, grammar).result()
        self._keep(grammar, found)
        return Constraint(found[0], sequences, grammar)

    @property
    def kept(self) -> dict[str, int]:
        """Grammars that are kept compiled, the one used last at the end, and their bytes."""
        return {grammar: size for grammar, (_, size) in self._known.items()}

    def _keep(self, grammar: str, found: tuple[LLMatcher, int]) -> None:
        """As the last one that was used; the first ones go where they are too many or too large."""
        self._known[grammar] = found
        self._known.move_to_end(grammar)
        while (
            len(self._known) > _CACHED
            or sum(size for _, size in self._known.values()) > _CACHED_BYTES
        ):
            self._known.popitem(last=False)

    def _compiled(self, grammar: str) -> tuple[LLMatcher, int]:
        """And the bytes that it takes, with those that others took meanwhile."""
        if self._tokenizer is None:
            self._tokenizer = self._read_tokenizer()
        before = in_use()
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
        if not matcher.is_error():
            matcher.compute_logit_bias()  # an error where no token may be the first one
        after = in_use()
        give_back()  # compiling takes ten times what is left
        if before is None or after is None:
            return matcher, _UNKNOWN_BYTES
        return matcher, max(_LEAST_BYTES, after - before)

    def _read_tokenizer(self) -> LLTokenizer:
        config, tokenizer = self._engine.config, self._engine.tokenizer
        ends = end_tokens(config.eos, tokenizer, config.vocabulary)
        if not ends:
            raise ApiError(400, "the model has no end-of-text token, which grammars need")
        text = tokenizer.definition().decode("utf-8")
        return LLTokenizer(text, config.vocabulary, list(ends))


class Constraint:
    """The tokens that a grammar allows next, for the sequences of one request.

    A matcher follows one sequence; tokens that speculation tried and dropped are rolled back.
    `grammar`: what it was compiled of. `field`: of the request, for errors.
    """

    def __init__(
        self, compiled: LLMatcher, sequences: int, grammar: str, field: str | None = None
    ) -> None:
        self.grammar = grammar
        self._field = field
        self._compiled = compiled
        self._sequences = sequences
        self._followers: list[tuple[LLMatcher, list[int]]] = []

    def __call__(self, emitted: Sequence[int]) -> NDArray[np.bool_]:
        """Mask [vocabulary]. GrammarError where it is too costly, or allows no token."""
        matcher, seen = self._follower(emitted)
        common = _common(seen, emitted)
        if common < len(seen):
            matcher.rollback(len(seen) - common)
        matcher.consume_tokens(list(emitted[common:]))
        seen[common:] = emitted[common:]
        mask: NDArray[np.bool_] = np.frombuffer(matcher.compute_logit_bias(), np.uint8) != 0
        if matcher.is_error():
            why = _why(matcher, "no text that it allows begins so")
            message = f"the grammar cannot be kept: {why:.200}"
            raise GrammarError(message, field=self._field)
        return mask

    def _follower(self, emitted: Sequence[int]) -> tuple[LLMatcher, list[int]]:
        """The matcher whose tokens are the nearest; a new one where all are far."""
        best = max(
            self._followers,
            key=lambda one: 2 * _common(one[1], emitted) - len(one[1]),
            default=None,
        )
        near = best is not None and len(best[1]) - _common(best[1], emitted) <= _FAR
        if best is not None and (near or len(self._followers) >= self._sequences):
            return best
        self._followers.append((self._compiled.deep_copy(), []))
        return self._followers[-1]


def _why(matcher: LLMatcher, stuck: str) -> str:
    """A matcher's error, `stuck` where it allows no token."""
    error = one_line(matcher.get_error())
    return stuck if _NO_TOKEN in error else error


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    if list(one[:length]) == list(other[:length]):
        return length
    return next(i for i in range(length) if one[i] != other[i])


def _in_deep_thread(work: Callable[[str], T], grammar: str) -> Future[T]:
    """`work(grammar)` in a thread of its own with a large stack."""
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return  # the client is gone; from here on it can no longer be cancelled
        try:
            future.set_result(work(grammar))
        except BaseException as error:
            future.set_exception(error)

    usual = threading.stack_size(_STACK)
    try:
        threading.Thread(target=run, name="lora-grammar", daemon=True).start()
    finally:
        threading.stack_size(usual)
    return future
