"""Train the two adapters on prose through PEFT itself: plain LoRA and block-diagonal LoRA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import BdLoraConfig
from transformers import AutoModelForCausalLM

from .adapter_plan import AdapterPlan
from .batches import Windows
from .optim import Budget, schedule, set_rates

COLUMN_SHARDED = ["q_proj", "k_proj", "v_proj", "up_proj", "gate_proj"]
ROW_SHARDED = ["o_proj", "down_proj"]


def adapter_config(plan: AdapterPlan) -> LoraConfig:
    """PEFT's configuration; Q, K, V, up and gate have a blocked B, output and down a blocked A."""
    blocked = None
    if plan.blocks:
        blocked = BdLoraConfig(
            target_modules_bd_a=ROW_SHARDED,
            target_modules_bd_b=COLUMN_SHARDED,
            nblocks=plan.blocks,
        )
    return LoraConfig(
        r=plan.rank,
        lora_alpha=2 * plan.rank,
        lora_dropout=0.0,
        target_modules=COLUMN_SHARDED + ROW_SHARDED,
        task_type="CAUSAL_LM",
        use_bdlora=blocked,
    )


def load_reference(folder: Path) -> Any:
    """The target as transformers loads it, in float32."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def load_adapted(folder: Path, adapter: Path) -> Any:
    """The target with an adapter on it as PEFT loads both."""
    model: Any = PeftModel.from_pretrained(load_reference(folder), str(adapter))
    return model.eval()


def train_adapter(folder: Path, source: Windows, plan: AdapterPlan, budget: Budget) -> Any:
    """Train one adapter on windows of `source` over the target in `folder`."""
    torch.manual_seed(plan.seed)
    model: Any = get_peft_model(load_reference(folder), adapter_config(plan))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.01)
    optimizer.param_groups[0]["plateau"] = plan.rate
    while (share := budget.share()) < 1.0:
        set_rates([optimizer], schedule(share, warmup=0.05))
        inputs, targets = source.draw(plan.sequences, plan.length)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=inputs).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        budget.done += 1
        if budget.done % 10 == 0:
            print(f"step {budget.done} share {share:.3f} loss {loss.item():.4f}", flush=True)
    return model


def export_adapter(model: Any, folder: Path) -> None:
    """Save through PEFT with FP16 values, naming no path of this machine."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.half()
    model.save_pretrained(str(folder))
    (folder / "adapter_model.safetensors").chmod(0o644)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "demo"
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
