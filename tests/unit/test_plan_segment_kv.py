"""Memory of standard and segment KV caches (the paper's example and the engine's own pages)."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_sdk.cli.plan import plan
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.model.shapes import shape_config
from lora_sdk.plan.segment_kv import (
    BeamLoad,
    beam_pages,
    config_token_bytes,
    fragmented_bytes,
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


def test_the_worst_case_of_fragments_is_the_sum_of_all_steps() -> None:
    load = BeamLoad(2, 3, 10, 4)
    steps = [standard_bytes(BeamLoad(2, 3, 10, length), 7) for length in (1, 2, 3, 4)]
    assert fragmented_bytes(load, 7) == sum(steps)
    assert fragmented_bytes(EXAMPLE, 1) > 700 * standard_bytes(EXAMPLE, 1)


@pytest.mark.parametrize(("prompt", "response"), [(40, 28), (64, 9), (3, 2), (31, 2), (31, 4)])
def test_the_pages_are_those_of_a_run_at_batch_8(prompt: int, response: int) -> None:
    """Beams that part at the first token and stay, so that they share the prompt alone: on scripted
    boards, at the last step, copies of the prompt's last page included."""
    from tests.scripted import VOCABULARY
    from tests.unit.test_beam_requests import Beams

    load = BeamLoad(8, 4, prompt, response)
    driven = Beams(pages=1000, sequences=32, row_limit=640, scratch=640)
    most = 0

    def measure() -> None:
        nonlocal most
        cache = driven.cache
        most = max(most, len({page for one in cache._open for page in cache.pages(one)}))

    def stay(output: Sequence[int]) -> np.ndarray:
        """Four tokens first, then the beam's first token again: no beam ends or forks."""
        measure()
        mask = np.zeros(VOCABULARY, bool)
        mask[output[:1] if output else [11, 22, 33, 44]] = True
        return mask

    for index in range(8):
        tokens = [index] * prompt
        driven.search(tokens, beam_width=4, n=4, max_tokens=response, allowed_tokens=stay)
    driven.runner.before_step = measure
    driven.finish()
    assert most == beam_pages(load)
    assert beam_pages(BeamLoad(8, 4, 33, 1)) == 8 * 2  # never forked


def test_lora_plan_compares_the_policies() -> None:
    arguments = ["--boards", "2", "-c", "256", "--beams", "4", "--batch", "2"]
    lengths = ["--prompt", "64", "--response", "40"]
    found = json.loads(CliRunner().invoke(plan, [*arguments, *lengths, "--json"]).stdout)
    assert [entry["context"] for entry in found["modelled"]] == [128, 256]
    sizes = found["beam_search"]
    assert sizes["standard_bytes"] * (64 + 4 * 48) == sizes["segment_bytes"] * 4 * (64 + 40)
    assert sizes["pages"] == 2 * (2 + 4 * 2)
    room = sizes["capacity_pages"]
    assert sizes["largest_batch"]["pages"] == room // (2 + 4 * 2) > found["kv_pages"] // 10
    assert sizes["largest_batch"]["standard"] < sizes["largest_batch"]["segment"]
    times = sizes["modelled"]
    assert times["requested"]["batch"] == 2
    assert times["standard"]["modelled_first_token_s"] == pytest.approx(
        4 * times["pages"]["modelled_first_token_s"]
    )
    for one in times.values():
        first, following = one["modelled_first_token_s"], one["modelled_next_token_s"]
        assert one["modelled_latency_s"] == pytest.approx(first + 39 * following)
        rate = one["batch"] * 40 / one["modelled_latency_s"]
        assert one["modelled_tokens_per_second"] == pytest.approx(rate)
        assert one["batch"] * 4 <= sizes["max_sequences"]
    text = CliRunner().invoke(plan, [*arguments, *lengths]).stdout
    assert "by the segment policy" in text and "modelled, pages: batch" in text
    longer = CliRunner().invoke(plan, [*arguments, "--json"]).stdout
    assert json.loads(longer)["beam_search"]["modelled"] == {}  # more than the model's positions


def test_flags_of_a_beam_search_need_beams() -> None:
    failed = CliRunner().invoke(plan, ["--batch", "2"])
    assert str(failed.exception) == "--batch needs --beams"
    failed = CliRunner().invoke(plan, ["--beams", "0"])
    assert str(failed.exception) == "beams is 0; expected at least 1"
    failed = CliRunner().invoke(plan, ["--beams", "4", "--prompt", str(1 << 40)])
    assert "is above 1048576" in str(failed.exception)
