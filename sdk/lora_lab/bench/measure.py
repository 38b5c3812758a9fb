"""Rounds of one workload, or alternating rounds of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lora_host.boards import load_board
from lora_host.overlay import load_overlay
from lora_lab.bench.memory import ReadBuffer, bound_threads
from lora_lab.bench.report import summarize
from lora_lab.bench.rounds import Round, Workload, run_round
from lora_sdk.model.config import load_config
from lora_sdk.model.demo import demo_model_path
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.placement import make_plan

Progress = Callable[[int, int], None]


def measure(
    model: Path | None = None,
    *,
    boards: int = 1,
    threads: int | None = None,
    prompt: int = 32,
    tokens: int = 64,
    rounds: int = 7,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The report of `rounds` rounds, see report.summarize. `progress(done, total)` counts rounds.
    Raises the errors of opening an Engine, and RequestError for more threads than cores."""
    with bound_threads(threads) as count:
        work = Workload(model, boards, count, prompt, tokens)
        (report,) = compare([work], rounds, progress)
    return report


def compare(
    works: Sequence[Workload], rounds: int, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """A report for each workload. Rounds alternate, so that all run under equal conditions."""
    found: list[list[Round]] = [[] for _ in works]
    total = rounds * len(works)
    with ExitStack() as stack:
        bytes_read = [token_bytes(work) for work in works]
        buffers = [stack.enter_context(ReadBuffer(count)) for count in bytes_read]
        if progress is not None:
            progress(0, total)
        for number in range(total):
            index = number % len(works)
            found[index].append(run_round(works[index], buffers[index], bytes_read[index]))
            if progress is not None:
                progress(number + 1, total)
        return [
            summarize(
                each,
                model=str(work.model or demo_model_path()),
                boards=work.boards,
                threads=work.threads,
                prompt_tokens=work.prompt,
                new_tokens=work.tokens,
                bytes_per_token=count,
                read_bytes=buffer.bytes,
            )
            for work, buffer, count, each in zip(works, buffers, bytes_read, found, strict=True)
        ]


def token_bytes(work: Workload) -> int:
    """Bytes of weight blocks that a decode step reads, computed from the plan."""
    config = load_config(work.model or demo_model_path())
    overlay = load_overlay(work.overlay or choose_overlay(config, "u280"))
    board = load_board(overlay.board.name)
    plan = make_plan(config, overlay, board, work.boards, context=64, sequences=1)
    matrices = (matrix for board in plan.boards for matrix in board.matrices.values())
    return sum(matrix.placed_bytes for matrix in matrices if matrix.spec.streamed)
