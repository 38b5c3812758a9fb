"""Fields of config.json that mean another arithmetic, and fields that mean none."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from lora_host.errors import ModelError
from lora_sdk.model.fields import Fields, short

# field -> (values that mean "off", what it would ask for)
_REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "attn_logit_softcapping": ((), "soft-capping of attention scores"),
    "final_logit_softcapping": ((), "soft-capping of logits"),
    "logit_softcapping": ((), "soft-capping of logits"),
    "partial_rotary_factor": ((1, 1.0), "rotating a part of a head"),
    "rotary_pct": ((1, 1.0), "rotating a part of a head"),
    "rotary_dim": ((), "rotating a part of a head"),
    "rope_interleaved": ((False,), "rotating neighbouring columns"),
    "no_rope_layers": (([],), "layers without rotary positions"),
    "alibi": ((False,), "ALiBi"),
    "compression_config": (({},), "a checkpoint quantized before quantization_config had its name"),
    "num_experts": ((0, 1), "a mixture of experts"),
    "num_local_experts": ((0, 1), "a mixture of experts"),
    "n_routed_experts": ((0,), "a mixture of experts"),
    "num_experts_per_tok": ((0,), "a mixture of experts"),
    "moe_intermediate_size": ((0,), "a mixture of experts"),
    "add_cross_attention": ((False,), "cross-attention"),
    "is_encoder_decoder": ((False,), "an encoder and a decoder"),
    "pruned_heads": (({},), "pruned heads"),
    "attention_chunk_size": ((), "chunked attention"),
    "attention_multiplier": ((), "another attention scale"),
    "query_pre_attn_scalar": ((), "another attention scale"),
    "embedding_multiplier": ((1, 1.0), "scaled embeddings"),
    "residual_multiplier": ((1, 1.0), "scaled residuals"),
    "logits_scaling": ((1, 1.0), "scaled logits"),
    "logit_scale": ((1, 1.0), "scaled logits"),
    "scale_emb": ((1, 1.0), "scaled embeddings"),
    "scale_depth": ((), "scaled residuals"),
    "clip_qkv": ((), "clipped q, k and v"),
    "qk_layernorm": ((False,), "norms of q and k"),
    "use_qk_norm": ((False,), "norms of q and k"),
    "qk_norm": ((False,), "norms of q and k"),
    "multi_query": ((False,), "this form of multi-query attention"),
    "parallel_attn": ((False,), "attention beside the MLP"),
    "use_parallel_residual": ((False,), "attention beside the MLP"),
}

# What an unknown family is missing, of these; the others are missing in some alone.
_NOWHERE = frozenset(
    {"a mixture of experts", "an encoder and a decoder", "cross-attention", "chunked attention"}
)

# Fields of unknown types -> what they tell.
_FOREIGN = {
    "vision_config": "image inputs",
    "audio_config": "audio inputs",
    "decoder_layers": "an encoder and a decoder",
    "ssm_cfg": "state-space layers",
    "state_size": "state-space layers",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "kv_lora_rank": "latent attention",
}

# model_type -> what it would ask for, of well-known ones.
_MISSING = {
    "bert": "attention to later positions",
    "codegen": "q, k and v fused in blocks",
    "falcon_mamba": "state-space layers",
    "gemma3n": "embeddings of each layer and several residual streams",
    "glm4": "norms behind attention and MLP",
    "gpt_neo": "unscaled attention with local layers",
    "idefics3": "image inputs",
    "jamba": "state-space layers and a mixture of experts",
    "llama4": "image inputs and a mixture of experts",
    "llava": "image inputs",
    "mamba": "state-space layers",
    "mamba2": "state-space layers",
    "mistral3": "image inputs",
    "mllama": "image inputs",
    "olmo": "norms without weights and clipped q, k and v",
    "paligemma": "image inputs",
    "phi4mm": "image inputs and audio inputs",
    "phimoe": "a mixture of experts",
    "qwen2_5_vl": "image inputs",
    "qwen2_vl": "image inputs",
    "qwen3_vl": "image inputs",
    "rwkv": "recurrent layers",
    "t5": "an encoder and a decoder",
    "whisper": "an encoder and a decoder",
}

# Training, bookkeeping and output options: no logit depends on them. pretraining_tp cuts products
# into slices that are added again: the same sums.
HARMLESS = (
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "_num_labels",
    "activation_dropout",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cls_token_id",
    "dropout",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "finetuning_task",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "init_std",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "layerdrop",
    "mask_token_id",
    "max_sequence_length",
    "model_type",
    "n_ctx",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
)


def unknown_model_type(fields: Fields, kind: object, supported: Iterable[str]) -> ModelError:
    """The error of a `model_type` that no family has: what it is missing, where the type or its
    fields tell."""
    if not isinstance(kind, str):
        return fields.error("model_type", kind, "the name of an architecture")
    missing = _MISSING.get(kind) or " and ".join(_asked(fields))
    if missing:
        return ModelError(f"{fields.where}: model_type is {short(kind)}: {missing}: not supported")
    near = get_close_matches(kind, supported, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else "docs/reference/models.md lists those that are"
    return ModelError(f"{fields.where}: model_type {short(kind)} is not supported; {hint}")


def _asked(fields: Fields) -> list[str]:
    """What the fields of an unknown type ask for and no family has, up to three features."""
    found = [what for name, what in _FOREIGN.items() if fields.values.get(name) is not None]
    for name, (off, what) in _REFUSED.items():
        try:
            fields.only(name, off, what)
        except ModelError:
            found += [what] if what in _NOWHERE else []
    return list(dict.fromkeys(found))[:3]


def refuse_unsupported(fields: Fields) -> None:
    """Raise ModelError naming the first field that asks for arithmetic this engine has not, of
    those that the family has not read itself."""
    for name, (off, what) in _REFUSED.items():
        if not fields.was_read(name):
            fields.only(name, off, what)
    if not fields.was_read("layer_types"):
        refuse_layer_types(fields)


def refuse_window(fields: Fields, positions: int) -> None:
    """Refuse a sliding window that the model's `positions` would reach: the family has none."""
    window = fields.integer("sliding_window", 0, 0)
    used = fields.flag("use_sliding_window", True)
    if used and 0 < window < positions:
        raise ModelError(
            f"{fields.where}: sliding_window {window} is shorter than max_position_embeddings"
            f" {positions}: a sliding window in a family without one is not supported"
        )
    refuse_layer_types(fields)


def refuse_layer_types(fields: Fields) -> None:
    """Refuse layers whose attention is not a full one."""
    kinds = fields.raw("layer_types", [])[1]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise fields.error("layer_types", kinds, "a list of full_attention only")
