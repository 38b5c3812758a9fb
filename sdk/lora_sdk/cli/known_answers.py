"""A model on all units together: its logits on boards must equal, byte for byte, those of one
emulated board."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_host.overlay import Overlay
from lora_sdk import Engine
from lora_sdk.optional import required_module

TOKENS = [(7 * i + 11) % 500 + 3 for i in range(40)]  # more than one tile of 32 positions
STEPS = 4
# For simulated cards, which take minutes for the demo model's prompt.
SMALL: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 64, "vocab_size": 512,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """The model that answers: its options of an Engine, and what to call it."""

    options: dict[str, Any]
    name: str


@contextmanager
def sample_for(simulated: bool) -> Iterator[Sample]:
    """The demo model; a small one for simulated cards."""
    if not simulated:
        yield Sample({}, "the demo model")
        return
    with tempfile.TemporaryDirectory(prefix="lora-validate-") as name:
        shape, folder = Path(name) / "config.json", Path(name) / "model"
        shape.write_text(json.dumps(SMALL))
        lab = required_module("lora_lab.product", "a model for simulated cards")
        lab.synthesize(shape, folder)
        yield Sample({"model": str(folder)}, "a random model of one layer")


def logits(tell: Callable[[int], None] = lambda _done: None, **options: Any) -> list[bytes]:
    """Logits as bytes: of the prompt's last row, then of greedy steps. `tell` gets the number of
    steps so far."""
    chosen = options.get("overlay")
    if isinstance(chosen, Overlay):
        options["overlay"] = str(chosen.path)
    out: list[bytes] = []
    with Engine(**options) as engine:
        sequence = engine.open_sequence()
        row = engine.prefill(sequence, TOKENS)
        for done in range(1, STEPS + 1):
            tell(done)
            out.append(row.tobytes())
            if done < STEPS:
                row = engine.prefill(sequence, [int(row.argmax())])
        engine.release(sequence)
    return out
