"""Adapters as PEFT makes, saves and runs them, BD-LoRA included, against the emulated boards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.model.config import model_types
from lora_sdk.plan.adapters import AdapterOptions
from tests.adapter_folders import BD_A, BD_B, linears
from tests.drive import Driver, open_runner
from tests.family_configs import FAMILY_CONFIGS
from tests.latent_configs import LATENT_KINDS
from tests.parity.reference import attention_kernel
from tests.parity.score import BOUND, error_limit, load_fixture
from tests.variant_tensors import normal
from tests.variants import VARIANTS, variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

LENGTH = 60
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"r": 8, "lora_alpha": 16},
    "rslora": {"r": 16, "lora_alpha": 12, "use_rslora": True},
    "patterns": {"r": 8, "lora_alpha": 8, "layers_to_transform": [1],
                 "rank_pattern": {"c_attn": 12, "q_proj": 12},
                 "alpha_pattern": {"c_fc": 20, "v_proj": 20}},
    "bd": {"r": 16, "lora_alpha": 24, "blocks": 4},
}  # fmt: skip


def others() -> list[str]:
    """A variant of each `model_type` of the registry that the lists below leave out."""
    named = {*FAMILY_CONFIGS, "gpt2", "opt_post_norm", "llama_gqa_bias"}
    seen = {variant(name).config["model_type"] for name in named}
    first: dict[str, str] = {}
    for one in VARIANTS:
        first.setdefault(one.config["model_type"], one.name)
    return [first[kind] for kind in model_types() if kind in first and kind not in seen]


@pytest.fixture
def peft(pytestconfig: pytest.Config) -> Any:
    try:
        import peft as module
    except ImportError:
        if pytestconfig.getoption("--require-parity"):
            pytest.fail("--require-parity, but peft is not installed")
        pytest.skip("peft is not installed")
    return module


def saved(peft: Any, folder: Path, name: str, kind: str, path: Path, tokens: list[int]) -> Any:
    """Make an adapter with PEFT, save it to `path`; its own logits, FP32 [len, vocabulary]."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    fields = dict(KINDS[kind])
    blocks = fields.pop("blocks", 0)
    if blocks:
        from peft.tuners.lora import BdLoraConfig

        fields["use_bdlora"] = BdLoraConfig(
            target_modules_bd_a=list(BD_A), target_modules_bd_b=list(BD_B), nblocks=blocks
        )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention_kernel(folder)
    ).eval()
    targets = sorted({m.rpartition(".")[2] for m, _, _ in linears(variant(name).config)})
    family = variant(name).config["model_type"]
    if family in ("falcon_h1", "nemotron_h"):  # PEFT refuses theirs
        targets.remove("out_proj")
    if family in LATENT_KINDS:  # of other linears PEFT adapts the experts, too
        targets = [target for target in targets if target[:2] in ("q_", "kv", "o_")]
    conv = family == "gpt2"
    config = peft.LoraConfig(
        target_modules=targets, fan_in_fan_out=conv, task_type="CAUSAL_LM", **fields
    )
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            values = parameter.numpy()
            if "lora_" in key:
                draw = normal(f"{kind}/{key}", values.size).reshape(values.shape) * 0.06
                parameter.copy_(torch.from_numpy(draw))
            parameter.copy_(parameter.half().float())
        adapted.save_pretrained(str(path))
        return adapted(input_ids=torch.tensor([tokens])).logits[0].float().numpy()


LEFT_OUT = ("glm4_moe", "qwen3_next", "deepseek_v2")
"""PEFT adapts their experts, too; with DeepSeek-V2's adapter some row is between two experts."""
# Norms of the branches' outputs enlarge what FP16 leaves of an adapter's small products.
ADAPTED = {"olmo2": 0.01, "olmo2_gqa": 0.01, "gemma2": 0.01, "gemma3": 0.01}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in ("gpt2", "opt_post_norm", "llama_gqa_bias")
        for kind in KINDS
        if (name, kind) != ("gpt2", "bd")  # PEFT has no BD-LoRA on Conv1D
    ]
    + [
        (name, "plain")
        for name in (*FAMILY_CONFIGS, *others(), "deepseek_v2_lite")
        if name not in LEFT_OUT
    ],
)
def test_the_boards_agree_with_peft(name: str, kind: str, peft: Any, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path / "model")
    size = variant(name).config["vocab_size"]
    tokens = [int(abs(t) * 1e6) % size for t in normal(f"{name}/peft", LENGTH)]
    want = saved(peft, folder, name, kind, tmp_path / "adapter", tokens)
    with open_runner(folder, 4, adapters=AdapterOptions(1, 16)) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        info = held.load("a", tmp_path / "adapter")
        driver = Driver(runner)
        base = driver.step({0: tokens})[0]
        held.attach(1, "a")
        driver.adapters[1] = held.slot_of(1)
        got = driver.step({1: tokens})[1]
    assert info.blocks == KINDS[kind].get("blocks", 1)
    limit = ADAPTED.get(name, error_limit(load_fixture(name), "init"))
    assert np.abs(got - want).max() <= limit * want.std()
    assert np.abs(base - want).max() > 15 * BOUND["init"] * want.std()
