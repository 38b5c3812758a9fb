"""What llama.cpp's converter makes of each family: keys of the metadata, names of tensors, and
which rows it moves. A family is one row."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from lora_sdk.model.rope_fields import DEFAULT_THETA

QKV = ("q", "k", "v")
GATE_UP = ("gate", "up")

# Canonical part -> the file's, of a layer and outside the layers.
LAYER_NAMES: Mapping[str, str] = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "attn_norm": "attn_norm",
    "mlp_norm": "ffn_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "attn_post_norm": "post_attention_norm",
    "mlp_post_norm": "post_ffw_norm",
    "sinks": "attn_sinks",
}
NAMES: Mapping[str, str] = {
    "embed.token": "token_embd",
    "embed.position": "position_embd",
    "embed_norm": "token_embd_norm",
    "final_norm": "output_norm",
    "lm_head": "output",
}
SUFFIXES: Mapping[str, str] = {"gamma": "weight", "beta": "bias", "bias": "bias"}

EPS = "attention.layer_norm_epsilon"
RMS_EPS = "attention.layer_norm_rms_epsilon"

# Key behind "ARCHITECTURE." -> field of config.json, whole numbers.
INTEGERS: Mapping[str, str] = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
WINDOW = "attention.sliding_window"
PATTERN = "attention.sliding_window_pattern"
# Read elsewhere (gguf_config.py), or without a meaning for the arithmetic.
READ = frozenset(
    ("attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base",
     "vocab_size", "tensor_data_layout", "attention.causal", "attention.clamp_kqv",
     "attention.max_alibi_bias", "expert_count", "expert_used_count")
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """`model_type` of config.json. `eps`: the key of the norms' epsilon and its field. `fields`:
    names of `INTEGERS`' fields that the family calls otherwise; None for those that it derives from
    others. `more`: other keys and their fields. `present`: fields that say whether a tensor is
    there. `derived`: further fields from those and the tensors' names. `rotary`: the field of the
    part of a head that is rotated. `window`: whether a sliding window may be named. `pairs`: rows
    of q and k lie as adjacent pairs. `experts`: keys of a mixture of experts and their fields,
    whole numbers; none: there are no such files. `one_plus`: norms are stored as 1 + w. `period`:
    one layer in so many has no window, 0 for families without such layers. `fused`: tensors that
    hold several parts. `two_norms`: names of the norms of a parallel residual with two, where they
    differ. `names`: other parts that have names of their own."""

    model_type: str
    eps: tuple[str, str]
    fields: Mapping[str, str | None] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any], Container[str]], Mapping[str, Any]] | None = None
    rotary: str | None = None
    window: bool = False
    pairs: bool = False
    one_plus: bool = False
    period: int = 0
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    two_norms: Mapping[str, str] = field(default_factory=dict)
    experts: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def _falcon(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
    """The newer decoder has groups of heads or two norms."""
    two = "blk.0.attn_norm_2.weight" in tensors
    new = two or values.get("num_kv_heads", 1) > 1
    return {"new_decoder_architecture": new, "num_ln_in_parallel_attn": 2 if two else 1}


def _gemma(layers_of_27b: int) -> Callable[..., Mapping[str, Any]]:
    """llama.cpp scales scores by the size of a head, but for the largest model, which it knows by
    its layers. The first rotary base has one default for all families there."""

    def derived(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
        split = values["hidden_size"] // values["num_attention_heads"]
        largest = values["num_hidden_layers"] == layers_of_27b
        return {
            "query_pre_attn_scalar": split if largest else values.get("head_dim", split),
            "rope_theta": values.get("rope_theta", DEFAULT_THETA),
        }

    return derived


def _mixtral(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
    """The converter calls Mistral and Mixtral llama, too. Mixtral has no biases, and another
    rotary base where a folder names none."""
    if "num_experts" in values:
        theta = values.get("rope_theta", DEFAULT_THETA)
        return {"model_type": "mixtral", "rope_theta": theta} | dict.fromkeys(_BIASES)
    return {"model_type": "mistral"} if "sliding_window" in values else {}


def _granite(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
    shared = values.get("shared_intermediate_size", 0)
    return {"model_type": "granitemoeshared"} if shared else {"shared_intermediate_size": None}


def _renormalized(always: bool) -> Callable[..., Mapping[str, Any]]:
    """Where no key says it, the family does: whether weights of the chosen experts add up to 1."""

    def derived(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
        return {"norm_topk_prob": values.get("norm_topk_prob", always)}

    return derived


def _oss(values: Mapping[str, Any], tensors: Container[str]) -> Mapping[str, Any]:
    """No key says that YaRN's ramp has the ends that are computed; the models are trained so."""
    scaling = values.get("rope_scaling", {"rope_type": "default"})
    more = {"truncate": False} if scaling["rope_type"] == "yarn" else {}
    return {"rope_scaling": {**scaling, **more}}


_EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
_EXPERT_FFN = {**_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size"}
SHARED_FFN = "expert_shared_feed_forward_length"
_NORM = {"expert_weights_norm": "norm_topk_prob"}
_RMS = (RMS_EPS, "rms_norm_eps")
_LAYER_NORM = (EPS, "layer_norm_eps")
_OLD_NORM = (EPS, "layer_norm_epsilon")
_Q_BIAS, _QKV_BIAS = "blk.0.attn_q.bias", "blk.0.attn_qkv.bias"
_BIASES = {"attention_bias": _Q_BIAS, "mlp_bias": "blk.0.ffn_gate.bias"}
_GPT2 = {"intermediate_size": "n_inner", "num_key_value_heads": None}
_FUSED: Mapping[str, tuple[str, ...]] = {"attn_qkv": QKV}
_CAPS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
_FACTORS = {
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling",
}  # fmt: skip
_PARALLEL = {"use_parallel_residual": "use_parallel_residual"}

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(
        model_type="llama", eps=_RMS, present=_BIASES, pairs=True, window=True, experts=_EXPERTS,
        derived=_mixtral,
    ),
    "granite": Architecture(
        model_type="granite", eps=_RMS, present=_BIASES, pairs=True, more=_FACTORS,
    ),
    "granitemoe": Architecture(
        model_type="granitemoe", eps=_RMS, present={"attention_bias": _Q_BIAS}, pairs=True,
        more=_FACTORS, experts={**_EXPERTS, SHARED_FFN: "shared_intermediate_size"},
        derived=_granite,
    ),
    "qwen2moe": Architecture(
        model_type="qwen2_moe", eps=_RMS, present={"qkv_bias": _Q_BIAS}, more=_NORM,
        experts={**_EXPERT_FFN, SHARED_FFN: "shared_expert_intermediate_size"},
        derived=_renormalized(False),
    ),
    "qwen3moe": Architecture(
        model_type="qwen3_moe", eps=_RMS, present={"attention_bias": _Q_BIAS}, more=_NORM,
        experts=_EXPERT_FFN, derived=_renormalized(True),
    ),
    "olmoe": Architecture(
        model_type="olmoe", eps=_RMS, present={"attention_bias": _Q_BIAS}, more=_NORM,
        experts=_EXPERTS, derived=_renormalized(False),
    ),
    "gpt-oss": Architecture(
        model_type="gpt_oss", eps=_RMS, present={"attention_bias": _Q_BIAS}, window=True, period=2,
        experts={**_EXPERTS, "expert_feed_forward_length": "intermediate_size"}, derived=_oss,
        names={"mlp_norm": "post_attention_norm"},
    ),
    "smollm3": Architecture(model_type="smollm3", eps=_RMS, present=_BIASES, pairs=True),
    "qwen2": Architecture(model_type="qwen2", eps=_RMS),
    "qwen3": Architecture(model_type="qwen3", eps=_RMS, present={"attention_bias": _Q_BIAS}),
    "olmo2": Architecture(model_type="olmo2", eps=_RMS, present={"attention_bias": _Q_BIAS}),
    "phi2": Architecture(model_type="phi", eps=_LAYER_NORM, rotary="partial_rotary_factor"),
    "phi3": Architecture(
        model_type="phi3", eps=_RMS, rotary="partial_rotary_factor", window=True,
        fused={"attn_qkv": QKV, "ffn_up": GATE_UP},
    ),
    "stablelm": Architecture(
        model_type="stablelm", eps=_LAYER_NORM, rotary="partial_rotary_factor", more=_PARALLEL,
        present={"use_qkv_bias": _Q_BIAS},
    ),
    "starcoder2": Architecture(
        model_type="starcoder2", eps=(EPS, "norm_epsilon"), present={"use_bias": _Q_BIAS},
        window=True,
    ),
    "gpt2": Architecture(model_type="gpt2", eps=_OLD_NORM, fields=_GPT2, fused=_FUSED),
    "starcoder": Architecture(model_type="gpt_bigcode", eps=_OLD_NORM, fields=_GPT2, fused=_FUSED),
    "gptneox": Architecture(
        model_type="gpt_neox", eps=_LAYER_NORM, rotary="rotary_pct", fused=_FUSED, more=_PARALLEL,
        fields={"num_key_value_heads": None}, present={"attention_bias": _QKV_BIAS},
    ),
    "bloom": Architecture(model_type="bloom", eps=_OLD_NORM, fields=_GPT2, fused=_FUSED),
    "mpt": Architecture(
        model_type="mpt", eps=_OLD_NORM, fused=_FUSED,
        fields={"max_position_embeddings": "max_seq_len", "intermediate_size": None,
                "num_key_value_heads": None},
    ),
    "falcon": Architecture(
        model_type="falcon", eps=_OLD_NORM, fused=_FUSED, present={"bias": _QKV_BIAS},
        fields={"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
        derived=_falcon, two_norms={"attn_norm": "attn_norm_2", "mlp_norm": "attn_norm"},
    ),
    "gemma": Architecture(
        model_type="gemma", eps=_RMS, one_plus=True, present={"attention_bias": _Q_BIAS},
    ),
    "gemma2": Architecture(
        model_type="gemma2", eps=_RMS, one_plus=True, present={"attention_bias": _Q_BIAS},
        more=_CAPS, window=True, period=2, derived=_gemma(46),
    ),
    "gemma3": Architecture(
        model_type="gemma3_text", eps=_RMS, one_plus=True, present={"attention_bias": _Q_BIAS},
        more={"final_logit_softcapping": "final_logit_softcapping",
              "rope.freq_base_swa": "rope_local_base_freq"},
        window=True, period=6, derived=_gemma(62),
    ),
}  # fmt: skip
