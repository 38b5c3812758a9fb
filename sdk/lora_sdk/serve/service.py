"""What the endpoints work with: the engine once it is loaded, its queue, and the models' names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lora_host.errors import AdapterError, LoraError, ModelError, RequestError
from lora_host.naming import install
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.serve.allocator import give_back
from lora_sdk.serve.attend import Attendants
from lora_sdk.serve.constraint import Compiler, Constraint
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.gate import Gate, Ticket
from lora_sdk.serve.grammar_fields import GrammarFields
from lora_sdk.serve.history import PERIOD
from lora_sdk.serve.lifecycle import Lifecycle
from lora_sdk.serve.metrics import Metrics
from lora_sdk.serve.settings import Settings
from lora_sdk.text.chat import find_template, read_template
from lora_sdk.text.fim import Fim, fim_of
from lora_sdk.text.tokenizer import LongText

if TYPE_CHECKING:
    from lora_sdk.opening.options import Progress
    from lora_sdk.serve.backend import Backend, ServedEngine
    from lora_sdk.serve.tracing import Traces

_log = logging.getLogger("lora.serve")

T = TypeVar("T")

_LARGE_BODIES = 6  # held at once
_COUNTED = 1 << 18  # bytes of a text whose tokens are counted or cut, also beyond the context
_MANY = 2 * _COUNTED  # tokens that are counted, at least
_AT_ONCE = 1 << 19  # bytes of a text, where it cannot be cut
_CONTEXT = "This model's maximum context length is {} tokens. However,"
"""OpenAI's words, by which libraries know the error."""
TOO_LONG = "context_length_exceeded"
"""The code of the error."""
PREFILL = "x-lora-prefill"  # a header of answers: "fast"
CALLER = "lora.caller"
"""Where a request's scope holds its Caller."""

LARGE_BODY_OF: ContextVar[str | None] = ContextVar("lora.large_body_of", default=None)
"""The client of the request that is served, where its body is large."""

OpenBackend = Callable[["Progress"], "Backend"]


class LoadingStopped(LoraError):
    """The server was told to end while the model loaded."""


@dataclass
class Caller:
    """Who sent a request: `client` is one for each key, or address where there are no keys. The
    counts are filled while it is served, for the log. `gone`: it dropped its connection. `place`:
    that of a large body."""

    client: str
    request_id: str
    counts: dict[str, object] = field(default_factory=dict)
    gone: bool = False
    place: Ticket | None = None

    def note_prefill(self, mode: str | None) -> None:
        """A worker of this mode computed a prompt; None: its K and V are the boards' own."""
        if mode is not None:
            self.counts["prefill"] = mode

    def give_place(self) -> None:
        """Lets another large body come, if there is one."""
        if self.place is not None:
            self.place.release()
            self.place = None


class Service:
    """One engine and all that is served from it. Its methods belong to the event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.attendants = Attendants()
        self.gate = Gate(1, 0)
        self.large_bodies = Gate(_LARGE_BODIES, None)
        self._long_prompts = Gate(1, None)
        self._aside = ThreadPoolExecutor(1, "lora-bodies")
        self.metrics = Metrics(lambda: self.gate.running, lambda: self.gate.waiting)
        self.traces = _traces(settings)
        self._template = None
        if settings.chat_template is not None:
            self._template = read_template(Path(settings.chat_template))
        self._backend: Backend | None = None
        self._compiler: Compiler | None = None
        self.adapters: list[str] = []
        self.chats = False  # whether messages have a template
        self._turning: asyncio.Future[None] | None = None
        self._stopping = False
        self._created = int(time.time())
        self.started = time.monotonic()

    @property
    def backend(self) -> Backend:
        """What is served from; ApiError 503 while there is nothing."""
        self.lifecycle.check_ready()
        assert self._backend is not None  # ready
        return self._backend

    @property
    def engine(self) -> ServedEngine:
        """The loaded engine; ApiError 503 while there is none to serve from."""
        return self.backend.engine

    @property
    def weight_notices(self) -> WeightNotices:
        """The engine's; none while there is no engine."""
        return WeightNotices() if self._backend is None else self._backend.weight_notices

    async def load(self, open_backend: OpenBackend) -> None:
        """Open the engine in a thread. Raises what that raises, LoadingStopped after `stop`."""

        def progress(done: int, total: int) -> None:
            if self._stopping:
                raise LoadingStopped("loading was stopped")
            self.lifecycle.progress(done, total)

        backend = self._backend = await asyncio.to_thread(open_backend, progress)
        self._compiler = Compiler(backend.engine)
        self.gate = Gate(backend.capacity, self.settings.max_queue)
        await self.list_adapters()
        self.chats = await asyncio.to_thread(self._has_template, backend.engine)
        self._turning = asyncio.ensure_future(self._turn(backend.engine))
        self.lifecycle.ready()

    async def list_adapters(self) -> None:
        """Note the names of the loaded adapters; asking the engine waits for its step."""
        if self._backend is not None:
            infos = await asyncio.to_thread(self._backend.engine.adapters)
            self.adapters = [info.name for info in infos]

    async def stop(self) -> None:
        """Take no further request; return when all are answered, those that do not end within the
        drain timeout with 503."""
        self._stopping = True
        self.lifecycle.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.drain_timeout
        while self.attendants.count and loop.time() < deadline:
            await asyncio.sleep(0.02)
        self.attendants.cancel_all()

    async def close(self) -> None:
        """Give the boards back."""
        backend, self._backend = self._backend, None
        if self._turning is not None:
            self._turning.cancel()
        if backend is not None:
            await asyncio.to_thread(backend.engine.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        self._aside.shutdown(wait=False, cancel_futures=True)

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of `work`, one at a time, beside the event loop: for large bodies. What it
        takes besides is given back to the system, which glibc keeps for later otherwise."""

        def trimmed() -> T:
            try:
                return work()
            finally:
                give_back()

        return await asyncio.get_running_loop().run_in_executor(self._aside, trimmed)

    async def prepared(self, work: Callable[[], T]) -> T:
        """The result of `work`, which makes tokens of a request or texts of its tokens, beside the
        event loop. Those of large bodies are made one at a time, by turns between clients."""
        client = LARGE_BODY_OF.get()
        if client is None:
            return await asyncio.to_thread(work)
        async with self._long_prompts.place(client):
            return await self.aside(work)

    async def _turn(self, engine: ServedEngine) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            self.metrics.history.turn(engine.new_tokens)

    def _has_template(self, engine: ServedEngine) -> bool:
        try:
            return bool(self._template or find_template(engine.model_path, engine.tokenizer))
        except ModelError:
            return False

    def failed(self, error: LoraError) -> ApiError:
        """What a client is told of the engine's error; of boards the log has more. A hang, or
        boards that cannot be recovered, end the server's life."""
        if not isinstance(error, RequestError | AdapterError):
            _log.error("%s", error)
        if self._backend is not None and self._backend.is_end(error):
            self.lifecycle.die()
        return from_engine(error)

    async def constraint(self, fields: GrammarFields, sequences: int) -> Constraint | None:
        """What keeps a request's grammar over so many sequences, None where the text is free.
        ApiError 400."""
        found = fields.grammar()
        if found is None:
            return None
        assert self._compiler is not None  # ready
        return await self._compiler.constraint(*found, sequences)

    def chat_template(self, tools: bool) -> str:
        """The chat template, that for tools where the model has two. ApiError 400 for none."""
        if self._template is not None:
            return self._template
        try:
            return find_template(self.engine.model_path, self.engine.tokenizer, tools)
        except ModelError:
            raise ApiError(
                400, "the model has no chat template; use /v1/completions, or start the server "
                "with --chat-template", param="messages",
            ) from None  # fmt: skip

    def fim(self, field: str) -> Fim:
        """The model's tokens of text in the middle; ApiError 400 that names `field` for none."""
        found = fim_of(self.engine.tokenizer)
        if found is None:
            raise ApiError(
                400, f"{field}: the model's tokenizer has no tokens for text in the middle",
                param=field,
            )  # fmt: skip
        return found

    def adapter_of(self, model: str | None) -> str | None:
        """The adapter that a request's `model` names, None for the base model. ApiError 404."""
        if model is None or model in self.settings.names:
            return None
        if model in self.adapters:
            return model
        raise ApiError(
            404, f"the model {model!r:.100} is not served here; see /v1/models", param="model",
            code="model_not_found",
        )  # fmt: skip

    def models(self) -> list[dict[str, object]]:
        """The base model and all adapters, as `/v1/models` lists them."""
        engine = self.engine
        shared = {"object": "model", "created": self._created, "owned_by": "lora-fpga"}
        names = dict.fromkeys(self.settings.names)
        listed: list[dict[str, object]] = [
            {"id": name, **shared, "parent": None, "max_model_len": engine.context}
            for name in names
        ]
        listed += [
            {"id": name, **shared, "parent": self.settings.name, "max_model_len": engine.context}
            for name in self.adapters
        ]
        return listed

    @property
    def part(self) -> int:
        """Bytes of a text that are made tokens at once, at most."""
        return max(_AT_ONCE, 4 * self.engine.context)

    def tokens(
        self, text: str, special: bool, field: str = "prompt", counted: bool = False
    ) -> list[int]:
        """The tokens of a request's text; its `field`. ApiError 400 where it has more bytes than so
        many tokens as the context has can stand for, before any is made, or as soon as a long text
        has more tokens. `counted`: tokens beyond the context are wanted, too, of a text that is not
        much longer."""
        engine = self.engine
        if len(text) > engine.context:
            self._check_bytes(len(text.encode("utf-8", "surrogatepass")), field, counted)
        most = max(engine.context, _MANY if counted else 0)
        try:
            return engine.tokenizer.encode(text, special, most, self.part)
        except LongText as error:
            raise ApiError(
                400, f"{_CONTEXT.format(engine.context)} your {field} has {error}; shorten it",
                param=field, code=TOO_LONG,
            ) from None  # fmt: skip

    def _check_bytes(self, size: int, field: str, counted: bool) -> None:
        context, longest = self.engine.context, self.engine.tokenizer.longest
        if longest is None or size <= max(context * longest, _COUNTED if counted else 0):
            return
        raise ApiError(
            400, f"{_CONTEXT.format(context)} your {field} has {size} bytes, which are over "
            f"{(size - 1) // longest} tokens; shorten it", param=field, code=TOO_LONG,
        )  # fmt: skip

    def check_length(
        self, tokens: int, wanted: tuple[str, int | None], prompt: str = "prompt"
    ) -> None:
        """ApiError 400 where a prompt of so many tokens is empty, or does not fit the context
        together with the new tokens that are `wanted`: the field that says it, and its
        value. `prompt`: the field of the prompt."""
        context = self.engine.context
        if tokens == 0:
            raise ApiError(400, "the prompt is empty; expected at least one token", param=prompt)
        field, new = wanted
        if tokens > context:
            message, field = f"your {prompt} resulted in {tokens} tokens; shorten it", prompt
        elif tokens + (new or 0) > context:
            message = (
                f"you requested {tokens + (new or 0)} tokens ({tokens} in the {prompt}, {new} in "
                f"the completion); ask for at most {context - tokens} new ones"
            )
        else:
            return
        message = f"{_CONTEXT.format(context)} {message}"
        raise ApiError(400, message, param=field, code=TOO_LONG)

    def truncated(self, tokens: list[int], keep: int | None, new: int | None) -> list[int]:
        """The last `keep` tokens of a prompt, all if None; -1: as many as the context leaves beside
        `new` ones. ApiError 400 for a number that the context has no room for."""
        context = self.engine.context
        if keep is None:
            return tokens
        if keep == 0 or keep > context:
            raise ApiError(
                400, f"truncate_prompt_tokens is {keep}; expected -1 or 1 to {context}",
                param="truncate_prompt_tokens",
            )  # fmt: skip
        return tokens[-(max(1, context - (new or 1)) if keep == -1 else keep) :]


def _traces(settings: Settings) -> Traces | None:
    """What sends traces, if they are wanted. RequestError where its packages are missing."""
    if settings.otlp_traces_endpoint is None:
        return None
    try:
        from lora_sdk.serve.tracing import Traces
    except ImportError as error:
        raise RequestError(f"traces need the package {error.name}; {install('traces')}") from None
    return Traces(settings.otlp_traces_endpoint, settings.name)
