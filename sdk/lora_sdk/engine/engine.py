"""Engine: a model on boards, with the API for programs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from lora_host.errors import LoraError, RequestError
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.arguments.option import arguments_of
from lora_sdk.engine.adapter_api import AdapterApi
from lora_sdk.engine.board_loop import BoardLoop
from lora_sdk.engine.chat_api import ChatApi
from lora_sdk.engine.embedding import EmbeddingApi
from lora_sdk.engine.forward import forward
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.engine.kv_api import KvApi
from lora_sdk.engine.kv_source import KvSource, MigratedKvSource, OwnPrefill, PrefixSource
from lora_sdk.engine.request_api import RequestApi
from lora_sdk.engine.requests import OnDelta
from lora_sdk.engine.submission import (
    OnError,
    OnResult,
    Prompt,
    RequestMaker,
    beam_params_of,
    ends_of,
    one_params,
    one_prompt,
    params_of,
    prompts_of,
)
from lora_sdk.engine.token_api import TokenApi
from lora_sdk.engine.turns import Waiter
from lora_sdk.engine.watch_opening import open_watch
from lora_sdk.engine.worker_source import WorkerSource
from lora_sdk.kv.kv_limits import kv_limits
from lora_sdk.kv.kv_statistics import KvUse, PrefixCounts
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.opening.kv_offload_opening import check_offload, open_offload
from lora_sdk.opening.opening import open_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.prefill.job import PrefillUse
from lora_sdk.prefill.opening import check_worker, open_worker
from lora_sdk.prefill.sender import Sender
from lora_sdk.prefill.worker import LEAST_CACHED
from lora_sdk.recovery.recovery import Recovered, Recovery
from lora_sdk.recovery.scrubber import ScrubUse
from lora_sdk.sampling import BeamSearchParams, SamplingParams
from lora_sdk.spec.opening import open_speculation, with_taps
from lora_sdk.step.results import Delta, Result
from lora_sdk.step.speculation_statistics import SpeculationStatistics
from lora_sdk.step.stepper import StepObserver, Stepper
from lora_sdk.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_host.placing import Range
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.step.step_shape import StepRecord


class Engine:
    """with Engine("path/to/model", boards=4) as engine:  # without a path: the demo model
        print(engine.generate("import os\\n", max_tokens=32).text)
        answer = engine.chat([{"role": "user", "content": "Hello"}])  # or stream, astream, ...

    A model on 1, 2, 4, 8, 16, 32 or 64 boards. Use it as a context manager, also as `async with`,
    which gives the boards back without blocking the event loop. `generate`, `stream`, `chat` and
    their async forms work on text. `open_sequence`, `rows`, `step`, `commit`, `fork` and `verify`
    work on tokens. Several threads may call it at once. Their requests are batched: they run as
    rows of the same steps.
    """

    @arguments_of(EngineOptions)
    def __init__(self, options: EngineOptions) -> None:
        """Open boards and place a model on them. Raises a LoraError that names the problem."""
        check_worker(options)
        check_offload(options)
        options = _with_taps(options)
        self.model_path = options.folder
        self._options = options
        self._loaded = open_model(options)
        plan, runner = self._loaded.plan, self._loaded.runner
        self._adapters = AdapterSlots(self._loaded.cluster, plan)
        self._cache = KvCache(
            *kv_limits(plan),
            observer=self._adapters,
            window=self._loaded.config.read_positions,
            first_spilled=plan.first_spilled,
        )
        self._stepper = Stepper(
            runner, self._cache, self._adapters if options.max_adapters else None
        )
        self._recovery = Recovery(self._loaded, options, self._cache, self._stepper)
        self._recovery.on_boards = self._restore_adapters
        self._recovery.damaged_adapters = self._adapters.damaged
        if options.recovery == "auto":
            self._stepper.recover = self._adapters.recover = self._recovery.recover
        loop = BoardLoop(self._loaded, by_host=options.greedy == "host")
        greedy = GreedyLoop(loop, self._stepper, self._cache)
        try:
            self._speculation = open_speculation(options, self._loaded, self._cache)
        except BaseException:
            self._loaded.stack.close()
            raise
        self._prefixes = self._prefix_source(options)
        self._sender = Sender()
        self._loaded.stack.callback(self._sender.close)
        try:
            offload = open_offload(options, self._loaded)
            if offload is not None:
                self._cache.use_host(offload)
            self._workers = self._worker_source(options)
        except BaseException:
            self._loaded.stack.close()
            raise
        self._watch = open_watch(
            options,
            self._loaded,
            self._cache,
            self._stepper,
            self._recovery,
            self._adapters,
            self._speculation,
        )
        self._generator = Generator(
            self._stepper,
            self._cache,
            plan.row_limit,
            greedy,
            self._adapters,
            self._speculation,
            self._source(),
            self._watch,
        )
        self._requests = RequestMaker(
            self.config,
            self.context,
            lambda: self.tokenizer,
            self._adapters.check,
            self._workers is not None and self._workers.by_name,
        )
        lock, transfer = self._generator.lock, KvTransfer(self._loaded)
        self._adapter_api = AdapterApi(lock, self._adapters)
        self._chat_api = ChatApi(self)
        self._embedding_api = EmbeddingApi(self._generator, self._requests, plan)
        self._token_api = TokenApi(
            lock,
            self._cache,
            self._stepper,
            self._adapters,
            plan,
            self._requests,
            self._generator.between_steps,
        )
        self.requests = RequestApi(
            self._requests, self._generator, self._cache, self._stepper, transfer, self._adapters
        )
        self._kv_api = KvApi(lock, self._cache, self._stepper, self._adapters, self._loaded)
        self._closed = False

    def _prefix_source(self, options: EngineOptions) -> PrefixSource | None:
        """None: every prompt is computed. K and V that are not the boards' own are not shared."""
        hidden = self._speculation is not None and self._speculation.wants_hidden
        if not options.prefix_cache or options.prefill_is_fast:
            return None
        quantization = self.config.quantization
        kind = "fp16" if quantization is None else quantization.kv
        least = 0.0 if options.prefill is None else LEAST_CACHED
        return PrefixSource(self._cache, kind, self._adapters.digest, least, hidden)

    def _source(self) -> KvSource:
        inner = self._workers or self._prefixes or OwnPrefill(self._cache)
        return MigratedKvSource(inner, self._cache, KvTransfer(self._loaded), self._sender)

    def _worker_source(self, options: EngineOptions) -> WorkerSource | None:
        """None: every prompt is computed by the boards."""
        worker = open_worker(options, self._loaded)
        if worker is None:
            return None
        self._loaded.stack.callback(worker.close)
        inner = self._prefixes or OwnPrefill(self._cache)
        transfer = KvTransfer(self._loaded)
        fast = options.prefill_is_fast
        return WorkerSource(
            inner, worker, self._cache, transfer, self._adapters, self._sender, fast
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(confirm=error is None)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from asyncio import to_thread

        await to_thread(self.close, confirm=error is None)

    def close(self, confirm: bool = True) -> None:
        """Release the boards. Calling it again does nothing. `confirm`: sum the weights that were
        not summed since the last step first, and tell of damage by `on_notice` and the log
        `lora_sdk.recovery`; `Engine.confirm` raises it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._generator.close()
            if confirm and self._watch is not None and self.lost is None:
                with self._generator.lock:
                    self._watch.confirm_last()
        finally:
            self._loaded.stack.close()

    def __repr__(self) -> str:
        boards = "emulated boards" if self.cluster.emulated else "boards"
        closed = ", closed" if self._closed else ""
        return f"<Engine {str(self.model_path)!r} on {boards}: {self.plan.summary}{closed}>"

    # --- the loaded model -----------------------------------------------------------------------

    @property
    def config(self) -> ModelConfig:
        """The model's normalized configuration."""
        return self._loaded.config

    @property
    def plan(self) -> Plan:
        """The model's placement on the boards."""
        return self._loaded.plan

    @property
    def cluster(self) -> Cluster:
        """The opened boards."""
        return self._loaded.cluster

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def movable(self) -> bool:
        """Whether its requests may go on in another engine of the model: no draft takes hidden
        states of the prompt."""
        return self._speculation is None or not self._speculation.wants_hidden

    @property
    def context(self) -> int:
        """Max positions of a sequence."""
        return self.plan.context

    @property
    def steps(self) -> int:
        """Steps run through Python so far; the boards' own greedy loop is not counted."""
        return self._stepper.steps

    @property
    def new_tokens(self) -> int:
        """Tokens of all requests so far, also of those that run."""
        return self._generator.new_tokens

    @property
    def redone_steps(self) -> int:
        """Steps that were run a second time after a failure, by the SDK or by the C host."""
        return self._stepper.redone + self.cluster.stats().redone_steps

    @property
    def recoveries(self) -> tuple[Recovered, ...]:
        """The latest recoveries of the boards, oldest first."""
        return tuple(self._recovery.records)

    def settle(self) -> None:
        """Run the empty steps after which nothing that ended sequences held is in use any more."""
        with self._generator.lock:
            self._stepper.tried(self._stepper.flush)

    @property
    def recovery_count(self) -> int:
        """Recoveries so far; `recoveries` keeps the latest ones."""
        return self._recovery.count

    def adapter_ranges(self) -> dict[str, list[Range]]:
        """By adapter: what the boards hold of it, with the host's sums."""
        return self._adapters.ranges()

    def observe(self, observer: StepObserver | None) -> None:
        """Tell `observer` of every step, failure and recovery from now on; None: nobody."""
        self._stepper.observer = observer

    @property
    def scrubbed(self) -> ScrubUse | None:
        """What the boards have summed of their weights so far, None with `check_weights="off"`."""
        return None if self._watch is None else self._watch.scrubber.use

    @property
    def weight_notices(self) -> WeightNotices:
        """Notices of damaged weights that were found and loaded again."""
        return WeightNotices() if self._watch is None else self._watch.notices

    @property
    def lost(self) -> LoraError | None:
        """Why the boards cannot be recovered any more: every request ends with this error. None
        while they run."""
        return self._recovery.ended

    @property
    def speculation(self) -> SpeculationStatistics | None:
        """Counts of all verifications so far, None without speculation."""
        return None if self._speculation is None else self._speculation.statistics

    @property
    def kv_use(self) -> KvUse:
        """The KV cache's pages now, and what common prefixes have saved so far."""
        counts = PrefixCounts() if self._prefixes is None else self._prefixes.counts
        return self._cache.use(counts, self._generator.preempted)

    @property
    def prefill_use(self) -> PrefillUse | None:
        """What the worker has computed so far, None without one."""
        return None if self._workers is None else self._workers.use

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model folder's tokenizer. ModelError if it has none."""
        return Tokenizer(self.model_path, self.config.vocabulary)

    @property
    def command_lists(self) -> Mapping[int, Sequence[Command]]:
        """The boards' command lists by rank."""
        commands = self._loaded.runner.commands
        return {plan.rank: commands[plan.board] for plan in self.plan.boards}

    def record_steps(self, record: StepRecord) -> None:
        """Tell `record` of each step from now on, and of sums of weights. It takes the place of the
        record before it."""
        runner = self._loaded.runner
        runner.on_step = record.add
        if self._watch is not None:
            self._watch.scrubber.on_sums = record.add_sums
        if self.plan.first_spilled < self.plan.page_count:
            runner.spilled = self._cache.spilled_positions

    def check_weights(self) -> None:
        """Compare the checksums of all weights on the boards. TransportError names a difference."""
        with self._generator.lock:
            self._loaded.runner.check_weights()

    def confirm(self) -> None:
        """Sum all weights, unless the boards did since the last step. LoraError names board,
        bank and tensors if requests that have ended may hold wrong tokens; each notice is raised
        once. Does nothing with `check_weights="off"`; what it does not see: docs/recovery.md."""
        with self._generator.lock:
            if self._watch is not None:
                self._watch.confirm()

    # --- text -----------------------------------------------------------------------------------

    @overload
    def generate(
        self,
        prompts: Prompt,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        on_delta: OnDelta | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
        **fields: Any,
    ) -> Result: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        on_delta: OnDelta | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
        **fields: Any,
    ) -> list[Result]: ...
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        on_delta: OnDelta | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
        **fields: Any,
    ) -> Result | list[Result]:
        """Continue one prompt (text or token ids) or several at once. Returns one Result each.

        `params`: one for all, or one per prompt; None is greedy. `fields`: those of SamplingParams,
        such as max_tokens=40; they replace the fields of `params`. `on_delta` receives each delta
        of a single prompt and ends the request by returning True. `on_result` receives each
        finished prompt's index and result, and `on_error` each failed prompt's index and LoraError;
        if one of them raises, the others are cancelled. With `on_error` the others of several
        prompts go on, and the list holds their results. RequestError: a bad argument, or a prompt
        that is longer than the context. ModelError: NaN logits. Errors of the boards pass through.
        """
        ends, single = ends_of(
            self._requests.request, prompts, params, fields, on_delta, on_result, on_error
        )
        self._generator.run(ends.requests)
        results = ends.results()
        return results[0] if single else results

    @overload
    def beam_search(
        self,
        prompts: Prompt,
        params: BeamSearchParams | Sequence[BeamSearchParams] | None = None,
        on_result: OnResult | None = None,
        **fields: Any,
    ) -> Result: ...
    @overload
    def beam_search(
        self,
        prompts: Sequence[Prompt],
        params: BeamSearchParams | Sequence[BeamSearchParams] | None = None,
        on_result: OnResult | None = None,
        **fields: Any,
    ) -> list[Result]: ...
    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams | Sequence[BeamSearchParams] | None = None,
        on_result: OnResult | None = None,
        **fields: Any,
    ) -> Result | list[Result]:
        """Continue one prompt or several at once by beam search. Each Result has the `n` best
        hypotheses as outputs with scores, the best first.

        `params`: one for all, or one per prompt; None: 4 beams. `fields`: those of
        BeamSearchParams. Otherwise as `generate`, which also takes BeamSearchParams, alone or among
        SamplingParams.
        """
        several, single = prompts_of(prompts)
        each = beam_params_of(params, fields, len(several))
        return self.generate(several[0] if single else several, each, on_result=on_result)

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> Iterator[Delta]:
        """Deltas of one prompt's continuation as they arrive. Closing the iterator cancels.
        `fields` as for `generate`."""
        deltas: deque[Delta] = deque()
        waiter = Waiter()

        def received(delta: Delta) -> None:
            deltas.append(delta)
            waiter.wake()

        request = self._requests.request(one_prompt(prompt), one_params(params, fields), received)
        request.wake_at_end = waiter.wake
        self._generator.submit(request)
        try:
            while deltas or not request.ended:
                if deltas:
                    yield deltas.popleft()
                else:
                    self._generator.wait_for_delta(request, waiter, lambda: bool(deltas))
            request.result()
        finally:
            if not request.ended:
                self._generator.forget([request])

    @overload
    async def agenerate(
        self,
        prompts: Prompt,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **fields: Any,
    ) -> Result: ...
    @overload
    async def agenerate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **fields: Any,
    ) -> list[Result]: ...
    async def agenerate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **fields: Any,
    ) -> Result | list[Result]:
        """`generate` for asyncio; cancelling the task cancels the requests."""
        from lora_sdk.engine.background import collect

        several, single = prompts_of(prompts)
        each = params_of(params, fields, len(several))
        requests = [
            self._requests.request(prompt, one, index=None if single else index)
            for index, (prompt, one) in enumerate(zip(several, each, strict=True))
        ]
        results = await collect(self._generator, requests)
        return results[0] if single else results

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        on_result: Callable[[Result], object] | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Delta, None]:
        """`stream` for asyncio; leaving the loop cancels the request. `on_result` receives the
        result after the last delta."""
        from lora_sdk.engine.background import deltas

        request = self._requests.request(one_prompt(prompt), one_params(params, fields))
        return deltas(self._generator, request, on_result)

    def _restore_adapters(self) -> None:
        self._adapters.restore(self._loaded.cluster, self._loaded.plan)

    # --- chat -----------------------------------------------------------------------------------

    chat = forward("_chat_api", ChatApi.chat)
    stream_chat = forward("_chat_api", ChatApi.stream_chat)
    achat = forward("_chat_api", ChatApi.achat)
    astream_chat = forward("_chat_api", ChatApi.astream_chat)
    chat_tokens = forward("_chat_api", ChatApi.chat_tokens)

    # --- embeddings -----------------------------------------------------------------------------

    embed = forward("_embedding_api", EmbeddingApi.embed)
    aembed = forward("_embedding_api", EmbeddingApi.aembed)

    # --- tokens ---------------------------------------------------------------------------------

    open_sequence = forward("_token_api", TokenApi.open_sequence)
    release = forward("_token_api", TokenApi.release)
    length = forward("_token_api", TokenApi.length)
    rows = forward("_token_api", TokenApi.rows)
    step = forward("_token_api", TokenApi.step)
    discard = forward("_token_api", TokenApi.discard)
    commit = forward("_token_api", TokenApi.commit)
    drop = forward("_token_api", TokenApi.drop)
    fork = forward("_token_api", TokenApi.fork)
    prefill = forward("_token_api", TokenApi.prefill)
    verify = forward("_token_api", TokenApi.verify)
    sampler = forward("_token_api", TokenApi.sampler)
    export_kv = forward("_kv_api", KvApi.export_kv)
    import_kv = forward("_kv_api", KvApi.import_kv)

    # --- adapters -------------------------------------------------------------------------------

    load_adapter = forward("_adapter_api", AdapterApi.load_adapter)
    unload_adapter = forward("_adapter_api", AdapterApi.unload_adapter)
    adapters = forward("_adapter_api", AdapterApi.adapters)
    check_adapter = forward("_adapter_api", AdapterApi.check_adapter)


def _with_taps(options: EngineOptions) -> EngineOptions:
    """`with_taps`; RequestError for what no worker gives: hidden states of prompts for a draft."""
    found = with_taps(options)
    drafts = found.speculation
    if options.prefill is not None and drafts is not None and drafts.proposer == "eagle3":
        raise RequestError(
            f"prefill is {options.prefill!r}, but an eagle3 draft needs hidden states, which only "
            "the boards return; use another proposer or no prefill"
        )
    return found
