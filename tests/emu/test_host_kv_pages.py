"""Pages kept by the host on emulated boards: the same bytes, on any boards, also after failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from tests.few_pages import few_pages
from tests.recovery_rig import Disturbed, inject
from tests.variants import variant, write_checkpoint

STEM = [(i * i * 7 + 3 * i) % 200 for i in range(150)]
PROMPTS = [STEM, [*STEM[:70], 1, 2, 3], [9] * 120, STEM[:33], [*STEM, 7, 8], [11, 12] * 60]
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=5)
GIB = 1 / 1024


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("model"))


def outputs(engine: Engine) -> list[object]:
    """Every prompt alone, all at once, and a search."""
    found: list[object] = []
    for _ in range(2):
        for prompt in PROMPTS:
            result = engine.generate(prompt, PARAMS)
            assert isinstance(result, Result)
            found.append(result.outputs)
    several = engine.generate(PROMPTS, PARAMS)
    assert isinstance(several, list)
    searched = engine.beam_search(STEM[:60], BeamSearchParams(beam_width=2, n=2, max_tokens=6))
    assert isinstance(searched, Result)
    return [*found, *(one.outputs for one in several), searched.outputs]


@pytest.mark.parametrize(("boards", "kv"), [(1, "fp16"), (2, "int8-heads"), (4, "fp16")])
def test_logits_are_equal_to_the_bit(model: Path, boards: int, kv: str, tmp_path: Path) -> None:
    """Log probabilities show every bit of a difference in K or V that reaches the logits."""
    found = []
    for options in ({}, {"kv_offload": GIB}, {"kv_offload": GIB, "kv_offload_dir": tmp_path}):
        with Engine(model, boards=boards, max_sequences=4, kv=kv, threads=1, **options) as engine:
            few_pages(engine, 9)  # most cached pages are evicted
            found.append(outputs(engine))
            host = engine.kv_use.host
            assert (host is not None) == bool(options)
            if host is not None:
                assert host.found > 20 and host.damaged == 0 and host.bytes <= GIB * (1 << 30)
    assert found[0] == found[1] == found[2]
    assert not list(tmp_path.iterdir())


def test_pages_survive_a_recovery_and_go_on_fewer_boards(model: Path) -> None:
    with Engine(model, boards=2, max_sequences=4, threads=1, kv_offload=GIB) as engine:
        few_pages(engine, 9)  # most cached pages are evicted
        first = engine.generate(STEM, PARAMS)
        engine.generate([9] * 270, PARAMS)
        for keep in (True, False):  # reset in place; then one board is gone for good
            fault = abi.FAULT_DONE_LOST if keep else abi.FAULT_FIRMWARE_DEAD
            at = {0: lambda f=fault, k=keep: inject(engine, 1, f, until_reset=k)}
            with Disturbed(engine, at):
                engine.generate([3], PARAMS)
            before = engine.kv_use.host
            again = engine.generate(STEM, PARAMS)
            after = engine.kv_use.host
            assert isinstance(first, Result) and isinstance(again, Result)
            assert before is not None and after is not None
            assert again.outputs == first.outputs
            if keep:
                assert again.cached_tokens == 149 and after.found >= before.found + 4
        assert engine.plan.size == 1 and again.cached_tokens == 149


def test_wrong_bytes_on_the_way_are_noticed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(model, boards=2, max_sequences=4, threads=1, kv_offload=GIB) as engine:
        few_pages(engine, 9)  # most cached pages are evicted
        first = engine.generate(STEM, PARAMS)
        engine.generate([9] * 270, PARAMS)
        cluster, read, write = engine.cluster, engine.cluster.read_into, engine.cluster.write

        def damaged(board: int, bank: int, offset: int, data: np.ndarray) -> None:
            data = data.copy()
            data[7] ^= 1
            write(board, bank, offset, data)

        def flipped(board: int, bank: int, offset: int, data: np.ndarray) -> None:
            read(board, bank, offset, data)
            if bank != engine.plan.overlay.control_bank:
                data[7] ^= 1

        monkeypatch.setattr(cluster, "write", damaged)
        again = engine.generate(STEM, PARAMS)
        monkeypatch.setattr(cluster, "write", write)
        monkeypatch.setattr(cluster, "read_into", flipped)
        kept = engine.kv_use.host
        engine.generate([8] * 270, PARAMS)
        monkeypatch.undo()
        assert isinstance(first, Result) and isinstance(again, Result)
        assert again.outputs == first.outputs and again.cached_tokens == 0
        assert kept is not None and engine.kv_use.host is not None
        assert engine.kv_use.host.kept == kept.kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_offload": 1, "prefix_cache": False}, "prefix_cache is off"),
        ({"kv_offload": 0}, "kv_offload is 0; expected a number above 0"),
        ({"kv_offload": 1e-9}, "expected at least one"),
        ({"kv_offload_dir": "."}, "no kv_offload says how many"),
        ({"kv_offload": 1, "kv_offload_dir": "missing"}, "missing is no folder"),
    ],
)
def test_bad_options_are_refused(model: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Engine(model, **options).close()  # type: ignore[arg-type]
