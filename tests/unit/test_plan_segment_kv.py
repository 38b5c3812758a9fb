"""Memory of standard and segment KV caches (the paper's example and the engine's own pages)."""

import pytest

from lora_host.errors import RequestError
from lora_sdk.core.kvcache import KvCache
from lora_sdk.model.shapes import shape_config
from lora_sdk.plan.segment_kv import (
    BeamLoad,
    config_token_bytes,
    segment_bytes,
    standard_bytes,
    token_bytes,
)

EXAMPLE = BeamLoad(batch=32, beams=4, prompt=1024, response=1024)


def test_the_papers_example() -> None:
    """Its smallest model: 32 layers, 32 heads of 128, FP16: 137 GB against 86 GB, 63%."""
    token = token_bytes(32, 32, 128)
    standard, segment = standard_bytes(EXAMPLE, token), segment_bytes(EXAMPLE, token)
    assert round(standard / 1e9) == 137
    assert round(segment / 1e9) == 86
    assert segment / standard == pytest.approx(0.63, abs=0.01)
    assert token == config_token_bytes(shape_config("llama2-7b"))


def test_grouped_heads_and_partial_steps() -> None:
    assert config_token_bytes(shape_config("llama3.1-8b")) * 4 == token_bytes(32, 32, 128)
    one = BeamLoad(1, 2, 10, 17)
    assert segment_bytes(one, 1) == 10 + 2 * 32
    assert segment_bytes(one, 1, step=1) == 10 + 2 * 17
    assert segment_bytes(BeamLoad(1, 1, 10, 0), 1) == 10


def test_forked_sequences_hold_what_the_equation_says() -> None:
    """Whole pages: a prompt of two blocks, three beams of one more block each."""
    cache = KvCache(64, 8, 8, 256, 512)
    first = cache.open()
    cache.grow(first, 64)
    free = cache.free_pages
    cache.committed_elsewhere(first, list(range(64)))
    beams = [first, cache.fork(first), cache.fork(first)]
    for beam in beams:
        cache.grow(beam, 96)
    used = free - cache.free_pages
    assert (2 + used) * 32 == segment_bytes(BeamLoad(1, 3, 64, 32), 1, step=32)


def test_bad_loads_are_named() -> None:
    with pytest.raises(RequestError, match="beams is 0"):
        BeamLoad(1, 0, 4, 4)
    with pytest.raises(RequestError, match="step is 0"):
        segment_bytes(EXAMPLE, 1, 0)


def test_lora_plan_prints_modelled_tokens_and_beam_memory() -> None:
    import json

    from click.testing import CliRunner

    from lora_sdk.cli.plan import plan

    arguments = ["--boards", "2", "-c", "256", "--beam-search", "2", "4", "64", "40"]
    found = json.loads(CliRunner().invoke(plan, [*arguments, "--json"]).stdout)
    assert [entry["context"] for entry in found["modelled"]] == [128, 256]
    assert all(entry["modelled_ms_a_token"] > 0 for entry in found["modelled"])
    sizes = found["beam_search"]
    assert sizes["standard_bytes"] * (64 + 4 * 48) == sizes["segment_bytes"] * 4 * (64 + 40)
    text = CliRunner().invoke(plan, arguments).stdout
    assert "modelled: " in text and "by the segment policy" in text
