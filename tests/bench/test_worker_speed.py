"""Seconds that a worker on a GPU takes from tokens to K, V and logits on the host, for four layers
of LLaMA2-7B's width: `pytest -s -m bench --prefill cuda:0` and this file."""

from __future__ import annotations

import statistics
import time

import pytest

from lora_sdk.model.shapes import shape_json
from lora_sdk.prefill.job import Computer, Job, Part
from tests import prefill_option
from tests.random_source import SCHEMES, RandomSource

pytestmark = pytest.mark.bench

SHAPE, LAYERS = "llama2-7b", 4
LENGTHS, RUNS = (128, 512, 2048), 5


def exact(scheme: str) -> Computer:
    from lora_prefill.exact.computer import ExactComputer

    source = RandomSource(SHAPE, LAYERS, scheme)
    return ExactComputer(source.config, source, max(LENGTHS), *prefill_option.opened())


def fast() -> Computer:
    """In FP32, as of a folder."""
    import torch
    import transformers

    from lora_prefill.torch_computer import TorchComputer

    fields = shape_json(SHAPE) | {"num_hidden_layers": LAYERS}
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device(prefill_option.fast_device()):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return TorchComputer(model, RandomSource(SHAPE, LAYERS, "fp16").config, (), max(LENGTHS))


def seconds(worker: Computer, lengths: tuple[int, ...] = LENGTHS) -> list[float]:
    """The median of some runs of each length."""
    found = []
    for length in lengths:
        tokens, times = [(i * i * 7 + 3 * i) % 30000 for i in range(length)], []
        for _ in range(RUNS + 1):
            job, parts = Job(tokens, None, lambda: True), list[Part]()
            begin = time.perf_counter()
            worker.compute(job, parts.append)
            times.append(time.perf_counter() - begin)
            assert job.logits is not None
        found.append(statistics.median(times[1:]))
    return found


@pytest.mark.parametrize("kind", [*SCHEMES, "fast"])
def test_seconds_from_tokens_to_logits(kind: str) -> None:
    if prefill_option.fast_device() == "cpu":
        pytest.skip("measures a GPU: name one, --prefill cuda:0")
    worker = fast() if kind == "fast" else exact(kind)
    print(f"\n{prefill_option.chosen} {kind}:", end="")
    for length, taken in zip(LENGTHS, seconds(worker), strict=True):
        print(f"  {length} tokens {taken:.4f} s", end="")
