"""A replica: a process of Ray's that owns an engine, or a fleet of engines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import ray

from lora_cluster.replicas.messages import Batch, Failure, Opened, Work, told
from lora_cluster.replicas.node_boards import free_boards
from lora_cluster.replicas.output_queue import OutputQueue
from lora_host.boardd.waiting import wait_for_daemons
from lora_host.errors import LoraError, RequestError, TransportError
from lora_sdk.serve.served_board import served_boards

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.engine.engine import Engine
    from lora_sdk.engine.requests import Request
    from lora_sdk.opening.weight_notices import WeightNotice
    from lora_sdk.serve.board_metrics import BoardReading
    from lora_sdk.serve.constraint import Compiler

MOST_CANCELLED = 10_000  # that came before their requests
DAEMON_SECONDS = 60.0  # that a recovery waits for a daemon, whose actor starts it again
OPENINGS = 3  # where another process took a board first, or a daemon was lost

GROUPS = {"work": 1, "news": 1, "control": 2}
"""Threads of the actor; calls of one group run in their order."""

Adapter = tuple[str, str, float]
Method = TypeVar("Method", bound=Callable[..., Any])


def in_group(name: str) -> Callable[[Method], Method]:
    """A method that a thread of this group runs."""
    return cast("Callable[[Method], Method]", ray.method(concurrency_group=name))


class ReplicaActor:
    """Ray calls its methods. Errors of the engine are returned, so that they stay one line."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._compiler: Compiler | None = None
        self._output = OutputQueue(self._is_lost)
        self._running: dict[int, Request] = {}
        self._cancelled: dict[int, None] = {}
        self._lock = threading.Lock()
        self._loaded = (0, 0)
        self._notices: list[WeightNotice] = []
        self._stopping = False

    @in_group("control")
    def open(
        self,
        kind: str,
        boards: int,
        devices: Sequence[str],
        options: Mapping[str, Any],
        adapters: Sequence[Adapter],
    ) -> Opened | Failure:
        """Open an engine with these adapters, on so many of the node's boards or on `devices`
        behind daemons."""
        try:
            if devices:
                wait = options.get("daemon_wait") or DAEMON_SECONDS
                self._engine = self._behind_daemons(devices, {**options, "daemon_wait": wait})
            else:
                self._engine = self._on_free_boards(kind, boards, options)
            for name, path, scale in adapters:
                self._engine.load_adapter(name, path, scale)
            return self._described(self._engine)
        except Exception as error:
            return told(error)

    def _on_free_boards(self, kind: str, boards: int, options: Mapping[str, Any]) -> Engine:
        for left in reversed(range(OPENINGS)):
            devices = free_boards(kind, boards)
            try:
                return self._on(devices, options)
            except LoraError:
                if not left or devices == free_boards(kind, boards):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _behind_daemons(self, devices: Sequence[str], options: Mapping[str, Any]) -> Engine:
        """A daemon may be lost while the engine is opened."""
        for _ in range(OPENINGS - 1):
            with suppress(TransportError):
                return self._on(devices, options)
            wait_for_daemons(devices, options["daemon_wait"])
        return self._on(devices, options)

    def _on(self, devices: Sequence[str], options: Mapping[str, Any]) -> Engine:
        from lora_sdk.engine.engine import Engine

        return Engine(devices=devices, progress=self._progress, on_notice=self._notice, **options)

    def _progress(self, done: int, total: int) -> None:
        if self._stopping:
            raise LoraError("loading was stopped")
        self._loaded = (done, total)

    def _notice(self, notice: WeightNotice) -> None:
        with self._lock:
            self._notices.append(notice)

    def _described(self, engine: Engine) -> Opened:
        use = engine.prefill_use
        return Opened(
            model_path=engine.model_path,
            config=engine.config,
            plan=engine.plan,
            movable=engine.movable,
            fast=use is not None and use.fast,
            adapter_slots=engine.plan.adapters.slots,
            requests=engine.plan.max_sequences,
            boards=served_boards(engine),
            node=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
        )

    @in_group("control")
    def progress(self) -> tuple[int, int]:
        """Bytes placed on the boards so far, of bytes in all."""
        return self._loaded

    # --- requests -------------------------------------------------------------------------------

    @in_group("work")
    def start(self, work: Work) -> None:
        """Run a request; what becomes of it is in `news`."""
        try:
            request = self._made(work)
            with self._lock:
                if self._cancelled.pop(work.number, self) is None:
                    request.cancel()
                self._running[work.number] = request
            assert self._engine is not None  # `_made` used it
            self._engine.requests.start(request)
        except Exception as error:
            with self._lock:
                self._running.pop(work.number, None)
            self._output.refuse(work.number, error)

    @in_group("work")
    def cancel(self, numbers: Sequence[int]) -> None:
        """End these requests before the next step."""
        with self._lock:
            for number in numbers:
                if number in self._running:
                    self._running[number].cancel()
                elif len(self._cancelled) < MOST_CANCELLED:
                    self._cancelled[number] = None

    @in_group("news")
    def news(self, seconds: float) -> Batch:
        """What has happened since the last call; waits at most so long for something."""
        found = self._output.take(seconds)
        with self._lock:
            for one in found:
                if one.ended:
                    self._running.pop(one.number, None)
            notices, self._notices = tuple(self._notices), []
        tokens = 0 if self._engine is None else self._engine.new_tokens
        return Batch(tuple(found), notices, tokens)

    def _made(self, work: Work) -> Request:
        engine = self._engine
        if engine is None:
            raise RequestError("the replica has no engine")
        params = replace(work.params, seed=work.seed)
        if work.grammar is not None:
            params = replace(
                params, allowed_tokens=self._constraint(work.grammar, params.sequences)
            )
        request = engine.requests.make(list(work.tokens), params)
        for sample, tokens in zip(request.samples, work.emitted, strict=True):
            for token in tokens:
                sample.accept(token)
        self._output.watch(work.number, request, work.streams)
        return request

    def _constraint(self, grammar: str, sequences: int) -> Callable[[Sequence[int]], Any]:
        from lora_sdk.serve.constraint import Compiler

        if self._compiler is None:
            assert self._engine is not None  # `_made` checked it
            self._compiler = Compiler(self._engine)
        return self._compiler.compiled(grammar, sequences)

    def _is_lost(self) -> bool:
        return self._engine is not None and (self._engine.closed or self._engine.lost is not None)

    # --- adapters, state ------------------------------------------------------------------------

    @in_group("control")
    def load_adapter(self, name: str, path: str, scale: float) -> AdapterInfo | Failure:
        """See Engine.load_adapter."""
        found: AdapterInfo | Failure
        found = self._answer(lambda engine: engine.load_adapter(name, path, scale))
        return found

    @in_group("control")
    def unload_adapter(self, name: str) -> Failure | None:
        """See Engine.unload_adapter."""
        failure: Failure | None = self._answer(lambda engine: engine.unload_adapter(name))
        return failure

    @in_group("control")
    def adapters(self) -> list[AdapterInfo] | Failure:
        """See Engine.adapters."""
        found: list[AdapterInfo] | Failure = self._answer(lambda engine: engine.adapters())
        return found

    @in_group("control")
    def confirm(self) -> Failure | None:
        """See Engine.confirm."""
        failure: Failure | None = self._answer(lambda engine: engine.confirm())
        return failure

    @in_group("control")
    def reading(self) -> BoardReading | Failure:
        """The boards' counts; waits for the step that runs."""
        from lora_sdk.serve.board_metrics import read_boards

        found: BoardReading | Failure = self._answer(read_boards)
        return found

    def _answer(self, ask: Callable[[Engine], Any]) -> Any:
        try:
            if self._engine is None:
                raise RequestError("the replica has no engine")
            return ask(self._engine)
        except Exception as error:
            return told(error, self._is_lost())

    @in_group("control")
    def close(self) -> None:
        """Give the boards back."""
        self._stopping = True
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(LoraError):
                engine.close()
