"""Prompts through the gate and the engine, several of one request side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from lora_host.errors import LoraError
from lora_sdk.sampling import SamplingParams
from lora_sdk.serve.allocator import give_back
from lora_sdk.serve.answers import Usage
from lora_sdk.serve.gate import Ticket
from lora_sdk.serve.service import Caller, Service
from lora_sdk.step.results import Delta, Result


@dataclass(frozen=True)
class Job:
    """A prompt as tokens, and how it is continued."""

    tokens: Sequence[int]
    params: SamplingParams


async def run_all(service: Service, caller: Caller, jobs: Sequence[Job]) -> list[Result]:
    """The results of all jobs; the first that fails ends the others. Raises ApiError."""
    tickets, jobs = _enter(service, caller, jobs), _salted(service, caller, jobs)
    tasks = [
        asyncio.ensure_future(_run(service, caller, job, ticket))
        for job, ticket in zip(jobs, tickets, strict=True)
    ]
    try:
        results = await asyncio.gather(*tasks)
    finally:
        await _end(tasks, tickets, jobs)
    caller.counts["completion_tokens"] = sum(r.completion_tokens for r in results)
    return results


async def stream_all(
    service: Service, caller: Caller, jobs: Sequence[Job], usage: Usage
) -> AsyncGenerator[tuple[int, Delta], None]:
    """(index of the job, its next delta) as they come; `usage` receives the cached tokens of those
    that have ended. Raises ApiError; closing it cancels."""
    tickets, jobs = _enter(service, caller, jobs), _salted(service, caller, jobs)
    queue: asyncio.Queue[tuple[int, Delta | None]] = asyncio.Queue()
    tasks = [
        asyncio.ensure_future(_pump(service, caller, job, ticket, index, queue, usage))
        for index, (job, ticket) in enumerate(zip(jobs, tickets, strict=True))
    ]
    left, tokens = len(jobs), 0
    try:
        while left:
            index, delta = await queue.get()
            if delta is None:
                left -= 1
                await tasks[index]  # raises what it ended with
                continue
            tokens += delta.token_id is not None
            yield index, delta
    finally:
        caller.counts["completion_tokens"] = tokens
        await _end(tasks, tickets, jobs)


def _enter(service: Service, caller: Caller, jobs: Sequence[Job]) -> list[Ticket]:
    caller.counts["prompt_tokens"] = sum(len(job.tokens) for job in jobs)
    caller.give_place()
    return service.gate.enter(caller.client, [job.params.sequences for job in jobs])


def _salted(service: Service, caller: Caller, jobs: Sequence[Job]) -> list[Job]:
    """The jobs as they are run: clients with different keys share no cached prefix."""
    if not service.settings.keys:
        return list(jobs)
    return [
        Job(job.tokens, replace(job.params, cache_salt=f"{caller.client} {job.params.cache_salt}"))
        for job in jobs
    ]


async def _end(
    tasks: Sequence[asyncio.Future[Any]], tickets: Sequence[Ticket], jobs: Sequence[Job]
) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for ticket in tickets:
        ticket.release()
    if any(job.params.allowed_tokens is not None for job in jobs):  # a mask may take 100 MB
        asyncio.get_running_loop().run_in_executor(None, give_back)


async def _run(service: Service, caller: Caller, job: Job, ticket: Ticket) -> Result:
    clock = service.metrics.clock(len(job.tokens), job.params, caller.counts)
    await ticket.wait()
    clock.granted()
    try:
        result = await service.engine.agenerate(job.tokens, job.params)
        assert isinstance(result, Result)  # a single prompt
        clock.finished(result)
        caller.note_prefill(result.prefill)
        return result
    except LoraError as error:
        raise service.failed(error) from error
    finally:
        ticket.release()


async def _pump(
    service: Service,
    caller: Caller,
    job: Job,
    ticket: Ticket,
    index: int,
    queue: asyncio.Queue[tuple[int, Delta | None]],
    usage: Usage,
) -> None:
    clock = service.metrics.clock(len(job.tokens), job.params, caller.counts)

    def ended(result: Result) -> None:
        usage.note(result.cached_tokens, result.prefill)

    try:
        await ticket.wait()
        clock.granted()
        stream = service.engine.astream(job.tokens, job.params, ended)
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                clock.received(delta)
                caller.note_prefill(delta.prefill)
                queue.put_nowait((index, delta))
        clock.ended()
    except LoraError as error:
        raise service.failed(error) from error
    finally:
        ticket.release()
        queue.put_nowait((index, None))
