"""Fleet: engines of one model behind one queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lora_cluster.dispatch.dispatcher import Dispatcher, FleetUse
from lora_cluster.dispatch.place import Kind, Place
from lora_cluster.dispatch.policy import Policy
from lora_cluster.dispatch.running import Running
from lora_host.errors import AdapterError, LoraError, RequestError
from lora_sdk.engine.background import relay
from lora_sdk.engine.requests import OnDelta, Request
from lora_sdk.engine.submission import (
    OnError,
    OnResult,
    Prompt,
    ends_of,
    one_params,
    one_prompt,
    params_of,
    prompts_of,
)
from lora_sdk.sampling import SamplingParams
from lora_sdk.step.results import Delta, Result

if TYPE_CHECKING:
    from lora_cluster.dispatch.dispatcher import Route
    from lora_cluster.dispatch.member import Member
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.opening.weight_notices import WeightNotice
    from lora_sdk.text.chat import Message
    from lora_sdk.text.tokenizer import Tokenizer


Self = TypeVar("Self", bound="Fleet")


class Fleet:
    """Workers compute prompts, clusters new tokens; both are engines of one model.

    A request goes to the worker that has room, and with its K and V to the next idle cluster. Until
    there is one the worker goes on with it. Without workers, clusters compute prompts themselves.
    If an engine fails, its requests go on elsewhere. The tokens are those of any one engine.
    """

    def __init__(
        self,
        workers: Sequence[Member],
        clusters: Sequence[Member],
        *,
        cluster_room: int | Sequence[int] = 1,
        policy: Policy | None = None,
        route: Route | None = None,
        supervised: bool = False,
    ) -> None:
        """The fleet closes the engines. `cluster_room`: requests that a cluster runs at once, one
        number for all or one each. `route`: see Dispatcher. `supervised`: somebody calls `failed`
        and `restored` where a cluster is started again. RequestError: no engine, or engines that
        differ in what decides the tokens."""
        engines = [*workers, *clusters]
        _check(engines)
        rooms: list[Any] = [cluster_room] * len(clusters)
        if isinstance(cluster_room, (list, tuple)):
            rooms = list(cluster_room)
        wrong = any(
            isinstance(room, bool) or not isinstance(room, int) or room < 1 for room in rooms
        )
        if len(rooms) != len(clusters) or wrong:
            raise RequestError(
                f"cluster_room is {cluster_room} for {len(clusters)} clusters; expected 1 or "
                "more each"
            )
        self._workers = [
            _new_place("worker", index, engine, engine.plan.max_sequences)
            for index, engine in enumerate(workers)
        ]
        self._clusters = [
            _new_place("cluster", index, engine, min(room, engine.plan.max_sequences))
            for index, (engine, room) in enumerate(zip(clusters, rooms, strict=True))
        ]
        for place in self._clusters:
            place.returns = supervised
        self._dispatcher = Dispatcher(self._workers, self._clusters, policy or Policy(), route)
        self._stack = ExitStack()  # the last one first
        self._stack.callback(self._dispatcher.close)
        for engine in engines:
            self._stack.callback(engine.close)
        self._stack.callback(self._dispatcher.refuse)

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Fleet:
        """The fleet of a `fleet.yaml` (docs/fleet.md). `options`: those of every Engine.
        RequestError names a field that is wrong; errors of opening an engine pass through."""
        from lora_cluster.dispatch.description import open_fleet

        workers, clusters, rooms = open_fleet(Path(path), options)
        try:
            return cls(workers, clusters, cluster_room=rooms)
        except BaseException:
            for engine in (*workers, *clusters):
                engine.close()
            raise

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def failed(self, engine: Member, error: BaseException, returns: bool) -> None:
        """An engine has failed, whether or not a request ran there. `returns`: it is started again,
        and requests may wait for it."""
        self._dispatcher.failed(self._place(engine), error, returns)

    def restored(self, engine: Member) -> None:
        """An engine that had failed takes requests again."""
        self._dispatcher.restored(self._place(engine))

    def _place(self, engine: Member) -> Place:
        return next(place for place in self.places if place.engine is engine)

    def close(self) -> None:
        """End all requests and release all boards. Calling it again does nothing."""
        self._stack.close()

    def confirm(self) -> None:
        """`Engine.confirm` of every engine; the first error is raised, with its place. An error
        also for damaged weights from which a request was moved away; each notice is raised once."""
        first: LoraError | None = None
        for place in self.places:
            try:
                place.confirm()
            except LoraError as error:
                first = first or type(error)(f"{place.name}: {error}", failure=error.failure)
        if first is not None:
            raise first

    @property
    def use(self) -> FleetUse:
        """Counts of all requests so far."""
        return self._dispatcher.use

    @property
    def places(self) -> tuple[Place, ...]:
        """Workers, then clusters."""
        return (*self._workers, *self._clusters)

    @property
    def weight_notices(self) -> tuple[tuple[str, WeightNotice], ...]:
        """The latest notices of damaged weights, each with its place's name; the oldest first."""
        found = [
            (place.name, notice)
            for place in self.places
            for notice in place.engine.weight_notices.latest
        ]
        return tuple(sorted(found, key=lambda one: one[1].when))

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. ModelError if it has none."""
        return self._first.tokenizer

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """As Engine.chat_tokens."""
        return self._first.chat_tokens(messages)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        on_delta: OnDelta | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
        **fields: Any,
    ) -> Result | list[Result]:
        """As Engine.generate. Callbacks run in the threads of the engines."""
        ends, single = ends_of(
            self._first.requests.make, prompts, params, fields, on_delta, on_result, on_error
        )
        self.run(ends.requests)
        results = ends.results()
        return results[0] if single else results

    def run(self, requests: Sequence[Request]) -> None:
        """Run requests of `Engine.requests.make`, and return once they have ended. If this is
        interrupted they are cancelled."""
        running = Running(self._dispatcher, requests)
        try:
            running.wait()
        finally:
            running.close()

    def start(self, requests: Sequence[Request], on_end: Callable[[], None]) -> Running:
        """Run requests of `Engine.requests.make` without waiting; see Running."""
        return Running(self._dispatcher, requests, on_end)

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> Iterator[Delta]:
        """As Engine.stream."""
        deltas: SimpleQueue[Delta | None] = SimpleQueue()
        request = self._first.requests.make(
            one_prompt(prompt), one_params(params, fields), deltas.put
        )
        running = Running(self._dispatcher, [request], partial(deltas.put, None))
        try:
            while (delta := deltas.get()) is not None:
                yield delta
            running.wait()
            request.result()
        finally:
            running.close()

    async def agenerate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **fields: Any,
    ) -> Result | list[Result]:
        """As Engine.agenerate."""
        several, single = prompts_of(prompts)
        each = params_of(params, fields, len(several))
        requests = [
            self._first.requests.make(prompt, one, index=None if single else index)
            for index, (prompt, one) in enumerate(zip(several, each, strict=True))
        ]
        ended: asyncio.Queue[None] = asyncio.Queue()
        end = relay(asyncio.get_running_loop(), ended, None)
        running = Running(self._dispatcher, requests, end)
        try:
            for _ in requests:
                await ended.get()
            results = [request.result() for request in requests]
        finally:
            running.cancel()
        return results[0] if single else results

    async def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        on_result: Callable[[Result], object] | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Delta, None]:
        """As Engine.astream."""
        deltas: asyncio.Queue[Delta | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        request = self._first.requests.make(
            one_prompt(prompt), one_params(params, fields), relay(loop, deltas)
        )
        running = Running(self._dispatcher, [request], relay(loop, deltas, None))
        try:
            while (delta := await deltas.get()) is not None:
                yield delta
            result = request.result()
            if on_result is not None:
                on_result(result)
        finally:
            running.cancel()

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """Read a PEFT folder as `name` into the host memory of every engine that has not failed.
        Returns what the first says of it. AdapterError, RequestError: as for Engine.load_adapter;
        then no engine has it."""
        loaded: list[Member] = []
        infos: list[AdapterInfo] = []
        try:
            for place in self.places:
                if place.failure is None:
                    infos.append(place.engine.load_adapter(name, path, scale))
                    loaded.append(place.engine)
        except BaseException:
            for engine in loaded:
                engine.unload_adapter(name)
            raise
        if not infos:
            raise RequestError(
                f"adapter {name!r}: every engine of the fleet has failed; open another"
            )
        return infos[0]

    def unload_adapter(self, name: str) -> None:
        """Remove an adapter from every engine that has not failed. AdapterError if it is not
        loaded, or while requests use it; then every engine keeps it."""
        self._dispatcher.without(name, partial(self._unload, name))

    def _unload(self, name: str) -> None:
        engines = [place.engine for place in self.places if place.failure is None]
        for engine in engines:
            engine.check_adapter(name)
            users = {info.name: info.users for info in engine.adapters()}[name]
            if users:
                raise AdapterError(
                    f"adapter {name!r} is used by {users} sequences of an engine; release them"
                )
        for engine in engines:
            engine.unload_adapter(name)

    @property
    def _first(self) -> Member:
        return self.places[0].engine


def _new_place(kind: Kind, index: int, engine: Member, room: int) -> Place:
    return Place(f"{kind} {index}", kind, engine, room)


def _check(engines: Sequence[Member]) -> None:
    if not engines:
        raise RequestError("a fleet has no engines; expected a worker or a cluster at least")
    first = engines[0]
    for engine in engines:
        if engine.model_path.resolve() != first.model_path.resolve():
            raise RequestError(
                f"a fleet has engines of {first.model_path} and of {engine.model_path}; expected "
                "one model"
            )
        if engine.context != first.context or engine.config != first.config:
            raise RequestError(
                f"engines of a fleet have contexts of {first.context} and {engine.context}, or "
                "different KV caches; open all with the same context and kv"
            )
        if not engine.movable:
            raise RequestError(
                "an engine of a fleet has an eagle3 draft, which needs hidden states of the "
                "prompt; open it without"
            )
