"""A value that overflows FP16 ends the request that it belongs to, names where it came from, and
leaves the others alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError
from lora_sdk import Engine, Result, SamplingParams
from tests.variants import variant, write_checkpoint

POISONED = 12  # position at which every row overflows
SHORT = SamplingParams(max_tokens=4, ignore_eos=True)
LONG = SamplingParams(max_tokens=30, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GPT-2 whose embedding of position 12 is at FP16's end in column 0, every token's above 16."""
    model = write_checkpoint(variant("gpt2"), tmp_path_factory.mktemp("nonfinite") / "model")
    tensors = load_file(model / "model.safetensors")
    for name, tensor in tensors.items():
        changed = tensor.copy()
        if name.endswith("wte.weight"):
            changed[:, 0] = 40
        elif name.endswith("wpe.weight"):
            changed[POISONED, 0] = 65504
        tensors[name] = np.ascontiguousarray(changed)
    save_file(tensors, model / "model.safetensors")
    return model


@pytest.fixture(scope="module", params=[1, 4])
def engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(folder, boards=request.param) as opened:
        yield opened


def test_the_request_is_named_and_the_others_go_on(engine: Engine) -> None:
    want = engine.generate([5, 6, 7], SHORT)
    assert isinstance(want, Result)
    received: dict[int, Result] = {}
    prompts = [[5, 6, 7], [9] * 11, [5, 6, 7]]
    with pytest.raises(ModelError) as caught:
        engine.generate(prompts, [SHORT, LONG, SHORT], on_result=received.__setitem__)
    message = str(caught.value)
    assert message.startswith("prompt 1: embed wrote NaN or infinity, first in row ")
    assert f"position {POISONED})" in message and "\n" not in message
    assert {index: result.token_ids for index, result in received.items()} == {
        0: want.token_ids,
        2: want.token_ids,
    }
    engine._stepper.flush()
    assert engine._cache.free_slots == engine.plan.overlay.max_scratch
    assert engine._cache.free_sequences == engine.plan.max_sequences


def test_the_boards_own_loop_names_it_too(engine: Engine) -> None:
    with pytest.raises(ModelError, match=rf"the prompt: embed wrote .*position {POISONED} on boa"):
        engine.generate([9] * 4, LONG)
    again = engine.generate([5, 6, 7], SHORT)
    assert isinstance(again, Result) and len(again.token_ids) == 4
