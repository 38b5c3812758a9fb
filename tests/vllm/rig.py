"""vLLM's LLM in the test's process, prompts, and what lora_sdk says to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lora_sdk import Engine, SamplingParams

STARTS = ("import os\n", "def main(", "class Foo:\n    def", "# Copyright", '"""Parse', "if x in (")


def prompts(count: int) -> list[str]:
    """Texts of different lengths, some with a prefix of several pages in common."""
    long = "".join(f"value_{n} = {n * n}\n" for n in range(12))
    return [
        (long if n % 3 == 0 else "") + STARTS[n % len(STARTS)] + f"  # {n}\n" for n in range(count)
    ]


@contextmanager
def vllm_on_boards(model: str | Path, **options: Any) -> Iterator[Any]:
    """vLLM's LLM, closed at the end, with all pages free before that."""
    from vllm import LLM

    llm = LLM(str(model), **{"disable_log_stats": False, **options})
    try:
        yield llm
        assert free_blocks(llm) == all_blocks(llm)
    finally:
        llm.llm_engine.engine_core.shutdown()


def scheduler(llm: Any) -> Any:
    """vLLM's scheduler, which runs in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def worker_of(llm: Any) -> Any:
    """The worker, which runs in this process."""
    return llm.llm_engine.model_executor.driver_worker.worker


def free_blocks(llm: Any) -> int:
    return int(scheduler(llm).kv_cache_manager.block_pool.get_num_free_blocks())


def all_blocks(llm: Any) -> int:
    return int(scheduler(llm).kv_cache_manager.block_pool.num_gpu_blocks) - 1


def counts(llm: Any) -> dict[str, int]:
    """What the worker has counted."""
    return dict(llm.collective_rpc("board_statistics")[0])


def greedy(llm: Any, texts: Sequence[str], tokens: int, **options: Any) -> list[tuple[int, ...]]:
    """Tokens of greedy requests that run together."""
    from vllm import SamplingParams as VllmParams

    params = VllmParams(temperature=0, max_tokens=tokens)
    found = llm.generate(list(texts), params, use_tqdm=False, **options)
    return [tuple(one.outputs[0].token_ids) for one in found]


def expected(model: str | Path, texts: Sequence[str], tokens: int, boards: int = 1, **options: Any):  # type: ignore[no-untyped-def]
    """The same of lora_sdk."""
    adapter = options.pop("adapter", None)
    with Engine(model, boards=boards, **options) as engine:
        if adapter is not None:
            engine.load_adapter("a", adapter)
        params = SamplingParams(max_tokens=tokens, adapter=None if adapter is None else "a")
        return [one.token_ids for one in engine.generate(list(texts), params)]
