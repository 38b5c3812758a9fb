"""Prompts computed by transformers for emulated boards: near the boards' own results, labelled, and
the same after a recovery. `--prefill cuda:0` runs them on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.synth.folder import synthesize
from lora_prefill.torch_model import refuse_tf32
from lora_sdk import Engine, Result
from lora_sdk.kv.key_columns import board_columns
from lora_sdk.prefill.job import Job, Part, joined_parts
from lora_sdk.quant.recipe import HeadKind, Recipe
from tests import prefill_option
from tests.calibrated import write_quantized
from tests.handover_times import slowed
from tests.recovery_rig import inject
from tests.unit.test_synth import TINY
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(90)]
TAIL = [7, 30, 2]
BOUND = 0.006  # of the logits' deviation


def fast(folder: Path, **options: object) -> Engine:
    return Engine(
        folder, boards=2, prefill=prefill_option.fast_device(), prefill_mode="fast", threads=1,
        max_sequences=3, **options,
    )  # type: ignore[arg-type]  # fmt: skip


def both(engine: Engine) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    """Logits of the last token and after three more: by the boards, then with the worker's."""
    assert engine._workers is not None
    sequence = engine.open_sequence()
    want = [engine.prefill(sequence, TOKENS), engine.prefill(sequence, TAIL)]
    job = Job(TOKENS, None, lambda: True)
    parts: list[Part] = []
    engine._workers._worker._computer.compute(job, parts.append)
    kv = joined_parts(parts).with_columns(board_columns(engine.config))
    assert job.logits is not None
    return want, [job.logits, engine.prefill(engine.import_kv(TOKENS, kv), TAIL)]


@pytest.mark.parametrize("name", ["llama_narrow", "gptj", "gpt_neox", "gpt2", "opt", "phi"])
def test_logits_are_within_a_bound_of_the_boards(name: str, tmp_path: Path) -> None:
    with fast(write_checkpoint(variant(name), tmp_path / "model", "x3")) as engine:
        for want, found in zip(*both(engine), strict=True):
            error = float(np.abs(found - want).max() / want.std())
            print(f"{name}: {error:.5f}")
            assert 0 < error < BOUND, error


@pytest.mark.parametrize("scheme", ["w8a8", "w4a16"])
def test_a_quantized_folder_is_dequantized(scheme: str, tmp_path: Path) -> None:
    """Near the boards, and with prefill_model near the unquantized model."""
    head: HeadKind = "fp16" if scheme == "w4a16" else "w8"
    write_quantized("llama_linear", tmp_path, Recipe(scheme, group=32, kv="fp16", head=head))
    bound = BOUND if scheme == "w4a16" else 0.2  # W8A8 rounds activations too
    with fast(tmp_path / "quantized") as engine:
        for want, found in zip(*both(engine), strict=True):
            assert np.sqrt(np.square(found - want).mean()) < bound * want.std()
    with fast(tmp_path / "plain") as engine:
        _, (plain, _) = both(engine)
    with fast(tmp_path / "quantized", prefill_model=tmp_path / "plain") as engine:
        _, (named, _) = both(engine)
    assert np.abs(named - plain).max() < 0.01 * plain.std()  # its files are FP16


def test_tf32_is_refused() -> None:
    import torch

    refuse_tf32()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(RequestError, match="round FP32 factors to TF32; expected whole FP32"):
            refuse_tf32()
    finally:
        torch.set_float32_matmul_precision(before)
    refuse_tf32()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path / "model", "x3")


def test_results_are_labelled(model: Path) -> None:
    with fast(model) as engine:
        for _ in range(2):  # nothing is shared
            result = engine.generate(TOKENS, max_tokens=3)
            assert isinstance(result, Result) and result.prefill == "fast"
            assert result.as_dict()["prefill"] == "fast" and result.cached_tokens == 0
        use = engine.prefill_use
        assert use is not None and (use.fast, use.prompts) == (True, 2)


def test_a_recovery_writes_the_workers_k_and_v_again(model: Path) -> None:
    found = []
    for lost in (False, True):
        with fast(model) as engine:
            deltas = engine.stream(TOKENS, max_tokens=12, logprobs=3, ignore_eos=True)
            kept = [next(deltas)]
            if lost:
                inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
            found.append([(d.token_id, d.logprobs) for d in [*kept, *deltas]])
            assert len(engine.recoveries) == lost
    assert found[0] == found[1]


def test_transfer_hides_under_the_computation_of_later_layers(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    wide = {"hidden_size": 256, "num_hidden_layers": 12, "max_position_embeddings": 1024}
    config.write_text(json.dumps({"model_type": "llama", **TINY["llama"], **wide}))
    synthesize(config, tmp_path / "model")
    with fast(tmp_path / "model") as engine:
        tokens = [(i * i * 7 + 3 * i) % 280 for i in range(900)]
        hidden, shown = slowed(engine, tokens, 1.3)
    assert len(hidden.writes) == 12  # two chunks of six groups
    assert hidden.hidden > 6 and shown.hidden == 0
    whole = sum(end - begin for begin, end in shown.writes)
    assert shown.exposed > 0.9 * whole and hidden.exposed_parts <= 1.3
