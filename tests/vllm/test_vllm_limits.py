"""Limits of boards in vLLM's configuration, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from lora_sdk import demo_model_path
from tests.processes import ROOT
from tests.vllm.rig import all_blocks, expected, greedy, prompts, vllm_on_boards

pytestmark = pytest.mark.vllm

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tensor_parallel_size": 2}, "tensor_parallel_size 2: one vLLM worker runs all boards"),
    ({"pipeline_parallel_size": 2}, "pipeline_parallel_size 2"),
    ({"block_size": 16}, "block size 16: boards have pages of 32 positions"),
    ({"kv_cache_dtype": "fp8"}, "KV cache type 'fp8': boards have their own"),
    ({"load_format": "dummy"}, "load format 'dummy'"),
    ({"quantization": "fp8"}, "quantization 'fp8': boards run what the model's folder holds"),
    (
        {"speculative_config": {"method": "draft_model", "num_speculative_tokens": 3,
                                "model": str(ROOT / "models" / "demo_draft")}},
        "speculative method 'draft_model'",
    ),
    ({"additional_config": {"speed": 2}}, "--additional-config has 'speed'"),
    ({"additional_config": {"kv": "int3"}}, "int3"),
    ({"additional_config": {"overlay": "no_such"}}, "no_such"),
    ({"runner": "pooling"}, "runner 'pooling'"),
    ({"kv_offloading_size": 1.0}, "kv_offloading_size: blocks stay on boards"),
    ({"num_gpu_blocks_override": 8}, "num_gpu_blocks_override 8; expected at least 33"),
    ({"revision": "v1"}, "revision 'v1': boards read 'main'"),
    ({"hf_overrides": {"num_hidden_layers": 1}}, "hf_overrides: boards read the model's folder"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "line"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_boards_do_not_do_is_refused_by_name(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as found:  # noqa: SIM117
        with vllm_on_boards(demo_model_path(), **options):
            pass
    assert line in str(found.value)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("LORA_BOARDS", "many", "LORA_BOARDS='many'; expected a number of boards"),
        ("LORA_DEVICES", "fpga0", "device 'fpga0': not a device URI"),
        ("LORA_CLUSTER", "/nowhere.yaml", "/nowhere.yaml: cannot be read"),
    ],
)
def test_boards_are_named_well(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: str
) -> None:
    monkeypatch.delenv("LORA_BOARDS")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as found:  # noqa: SIM117
        with vllm_on_boards(demo_model_path()):
            pass
    assert line in str(found.value)


def test_limits_reach_vllm_by_themselves() -> None:
    with vllm_on_boards(demo_model_path()) as llm:
        config = llm.llm_engine.vllm_config
        assert config.scheduler_config.max_num_seqs == 64
        assert config.scheduler_config.max_num_batched_tokens == 64
        assert config.cache_config.block_size == 32
        assert config.model_config.max_model_len == 1024
        assert all_blocks(llm) == 64 * 1024 // 32
        assert f"{demo_model_path()} on 4 boards" in str(llm)
        with pytest.raises(NotImplementedError, match="boards hold the model"):
            llm.apply_model(len)
    named = {"max_num_seqs": 3, "max_model_len": 200, "max_num_batched_tokens": 48}
    with vllm_on_boards(demo_model_path(), **named) as llm:
        config = llm.llm_engine.vllm_config
        assert config.scheduler_config.max_num_seqs == 3
        assert config.scheduler_config.max_num_batched_tokens == 48
        assert config.model_config.max_model_len == 200
        assert all_blocks(llm) == 3 * 7


def test_boards_of_a_cluster_file_with_their_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = ROOT / "tests" / "topologies" / "ring4.yaml"
    monkeypatch.delenv("LORA_BOARDS")
    monkeypatch.setenv("LORA_CLUSTER", str(ring))
    texts, kv = prompts(6), {"kv": "int8-heads", "stages": 2}
    with vllm_on_boards(demo_model_path(), additional_config=kv) as llm:
        assert greedy(llm, texts, 12) == expected(demo_model_path(), texts, 12, kv="int8-heads")
