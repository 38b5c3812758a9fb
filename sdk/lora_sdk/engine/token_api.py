"""Token-level API of sequences: rows, steps, commits, verification."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError, RequestError
from lora_sdk.engine.submission import RequestMaker
from lora_sdk.engine.turns import FairLock
from lora_sdk.sampling import Sampler, SamplingParams
from lora_sdk.step.results import Verified
from lora_sdk.step.step import Row, StepResult, build_rows, check_rows
from lora_sdk.step.verify import Tree, verify
from lora_sdk.text.tokenizer import check_token_ids

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.step.stepper import Stepper

Logits = NDArray[np.float32]


class TokenApi:
    """The sequences of one engine, for drafts, beam search and measurements. Thread-safe; each call
    waits for at most one step of other threads."""

    def __init__(
        self,
        lock: FairLock,
        cache: KvCache,
        stepper: Stepper,
        adapters: AdapterSlots,
        plan: Plan,
        requests: RequestMaker,
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """`between_steps` is called before a caller's rows run."""
        self._between_steps = between_steps
        self._lock = lock
        self._cache = cache
        self._stepper = stepper
        self._adapters = adapters
        self._plan = plan
        self._requests = requests

    def open_sequence(self, adapter: str | None = None) -> int:
        """A new empty sequence whose rows use `adapter`. RequestError if all sequences are open,
        AdapterError if no adapter slot is free."""
        with self._lock:
            sequence = self._cache.open()
            try:
                if adapter is not None:
                    self._adapters.attach(sequence, adapter)
            except BaseException:
                self._cache.close(sequence)
                raise
            return sequence

    def release(self, sequence: int) -> None:
        """Free a sequence's cache."""
        with self._lock:
            self._cache.close(sequence)

    def length(self, sequence: int) -> int:
        """Committed positions of a sequence."""
        return self._cache.length(sequence)

    def rows(
        self,
        sequence: int,
        tokens: Sequence[int],
        parents: Sequence[int] | None = None,
        *,
        after: int = -1,
        logits: Collection[int] | bool = True,
        argmax: Collection[int] = (),
        hidden: Collection[int] = (),
        final: Collection[int] = (),
    ) -> list[Row]:
        """Rows for `step`: a chain, or the tree that `parents` (indices into tokens) describe.

        They follow the last committed position, or the uncommitted row in slot `after`. `logits`,
        `argmax`, `hidden`, `final` (lm_head's inputs): indices of the rows that return them;
        `logits` may be True for all.
        """
        every = range(len(tokens))
        with self._lock:
            self._make_room(len(tokens))
            return build_rows(
                self._cache,
                sequence,
                tokens,
                parents,
                after=after,
                logits=(every if logits else ()) if isinstance(logits, bool) else logits,
                argmax=argmax,
                hidden=hidden,
                final=final,
            )

    def step(self, rows: Sequence[Row]) -> StepResult:
        """Run rows as one step. Their K and V stay in scratch slots until `commit` or `drop`.

        After a LoraError the same rows may be run again. After a ModelError they may not: the
        boards have completed the step, and all uncommitted rows of its sequences are dropped.
        RowsLostError: rows that these follow were lost when the boards were recovered.
        """
        with self._lock:
            return self._step(rows)

    def _step(self, rows: Sequence[Row]) -> StepResult:
        def run() -> StepResult:
            check_rows(self._cache, rows, self._plan.row_limit, self._plan.config.vocabulary)
            self._between_steps()
            return self._stepper.run(rows, retry=True)

        return self._stepper.tried(run)

    def _make_room(self, count: int) -> None:
        if count > self._cache.free_slots:
            self._stepper.tried(self._stepper.flush)

    def discard(self, rows: Sequence[Row]) -> None:
        """Return the slots of rows that will not be run."""
        with self._lock:
            self._cache.release_slots([row.slot for row in rows])

    def commit(self, sequence: int, slots: Sequence[int]) -> None:
        """Append a path of uncommitted rows, root first, to the sequence; drop its other rows.
        RowsLostError: they were lost when the boards were recovered."""
        with self._lock:
            self._cache.commit(sequence, slots)

    def drop(self, sequence: int) -> None:
        """Drop all uncommitted rows of a sequence."""
        with self._lock:
            self._cache.drop(sequence)

    def fork(self, sequence: int) -> int:
        """A new sequence with the same committed positions; full pages are shared."""
        with self._lock:
            return self._cache.fork(sequence)

    def prefill(self, sequence: int, tokens: Sequence[int]) -> Logits:
        """Run and commit tokens in as few steps as possible. Logits FP32 [V] of the last token."""
        limit = self._plan.row_limit
        tokens = check_token_ids(tokens, self._plan.config.vocabulary)
        if not tokens:
            raise RequestError("no tokens to prefill; expected at least one")
        for start in range(0, len(tokens), limit):
            chunk = tokens[start : start + limit]
            last = start + limit >= len(tokens)
            rows = self.rows(sequence, chunk, logits=[len(chunk) - 1] if last else ())
            try:
                result = self.step(rows)
            except ModelError:
                raise
            except BaseException:
                self.discard(rows)
                raise
            self.commit(sequence, [row.slot for row in rows])
        assert result.logits is not None  # of the last row
        logits: Logits = result.logits[0]
        return logits

    def verify(
        self,
        sequence: int,
        tree: Tree,
        params: SamplingParams | None = None,
        *,
        sample: int = 0,
        prompt_tokens: int = 0,
        commit: bool = True,
    ) -> Verified:
        """Check drafted tokens against the model in one step.

        The tree's root is the pending token. Returns the accepted drafts and the model's own next
        token, which becomes the pending one. Commits the accepted path unless `commit` is False.
        With a temperature `params.seed` is required: random numbers are keyed by position, so the
        tokens are those of plain decoding. The first `prompt_tokens` committed tokens count as
        prompt.
        """
        params = params or SamplingParams()
        if not isinstance(tree, Tree):
            raise RequestError(f"the tree is {tree!r:.60}; expected a Tree, e.g. Tree.chain(...)")
        if not params.greedy and params.seed is None:
            raise RequestError("verify samples with the random numbers of params.seed; set it")
        with self._lock:
            if len(tree.tokens) > self._plan.row_limit:
                raise RequestError(
                    f"a tree of {len(tree.tokens)} rows; the overlay takes {self._plan.row_limit}"
                )
            self._make_room(len(tree.tokens))
            sampler = self.sampler(params, sample)

            def run() -> Verified:
                self._between_steps()
                return verify(
                    self._stepper, self._cache, sampler, sequence, tree, prompt_tokens, commit
                )

            return self._stepper.tried(run)

    def sampler(self, params: SamplingParams, sample: int = 0) -> Sampler:
        """The sampler that requests with these parameters use."""
        seed = secrets.randbits(64) if params.seed is None else params.seed
        return self._requests.sampler(params, seed, sample)
