"""The models in transformers: configurations as they were published, weights as the `gguf` package
dequantizes them, rows where the converter took them from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "gemma": {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640,
        "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "sliding_window": 512, "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "smollm2": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
    },
}  # fmt: skip
ARCHITECTURES = {"gemma": gguf.MODEL_ARCH.GEMMA3, "smollm2": gguf.MODEL_ARCH.LLAMA}


@dataclass(frozen=True)
class Reference:
    """A transformers model."""

    model: Any

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """FP32 [tokens, vocabulary]."""
        import torch

        with torch.inference_mode():
            found: NDArray[np.float32] = self.model(torch.tensor([list(tokens)])).logits[0].numpy()
        return found


def dequantized(name: str, path: Path) -> Reference:
    """The model `name` with the weights of a file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(CONFIGS[name])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    files = gguf.get_tensor_name_map(ARCHITECTURES[name], config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    state = {}
    for own, parameter in model.state_dict().items():
        file = files.get_name(own, try_suffixes=(".weight",))
        if file not in stored:
            assert own == "lm_head.weight", own  # tied
            continue
        tensor = stored[file]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if name == "gemma" and own.endswith("norm.weight"):
            values = values - 1
        if name == "smollm2" and (".q_proj." in own or ".k_proj." in own):
            size = config.hidden_size // config.num_attention_heads
            pairs = values.reshape(-1, size // 2, 2, values.shape[1])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        state[own] = torch.from_numpy(np.ascontiguousarray(values)).reshape(parameter.shape)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return Reference(model.eval())
