"""What a configuration asks of the boards, in words: for tables of what is supported."""

from __future__ import annotations

from collections.abc import Callable

from lora_sdk.model.spec import ModelConfig

_ROPE = {
    "default": "rotary positions",
    "linear": "linear scaling",
    "llama3": "llama3 scaling",
    "yarn": "YaRN",
    "longrope": "longrope",
    "dynamic": "dynamic NTK",
}

# In the order in which they are listed.
_FEATURES: tuple[tuple[str, Callable[[ModelConfig], bool]], ...] = (
    ("LayerNorm", lambda c: c.norm == "layernorm"),
    ("RMSNorm", lambda c: c.norm == "rmsnorm"),
    ("norms by 1 + w", lambda c: c.one_plus),
    ("norms after the sums", lambda c: not c.norm_first),
    ("norms of branches", lambda c: c.branch_norms != "none"),
    ("norm of embeddings", lambda c: c.embed_norm),
    ("norms of q and k", lambda c: c.head_norms != "none"),
    ("parallel residual", lambda c: c.residual != "sequential"),
    ("gated MLP", lambda c: c.gated),
    ("experts", lambda c: c.experts is not None),
    ("sigmoid routing", lambda c: c.experts is not None and c.experts.sigmoid is not None),
    ("a shared expert", lambda c: c.experts is not None and c.experts.shared > 0),
    ("biases of experts", lambda c: c.experts is not None and c.experts.biased),
    ("clamped SwiGLU", lambda c: c.experts is not None and c.experts.limit > 0),
    ("attention sinks", lambda c: c.sinks),
    ("short convolutions", lambda c: c.recurrent is not None and c.recurrent.kind == "short_conv"),
    (
        "gated delta rules",
        lambda c: c.recurrent is not None and c.recurrent.kind == "gated_delta",
    ),
    (
        "selective scans",
        lambda c: c.recurrent is not None and c.recurrent.kind == "selective_scan",
    ),
    ("attention beside them", lambda c: c.recurrent is not None and c.recurrent.beside),
    ("layers of one kind each", lambda c: bool(c.without_mixer)),
    ("latent attention", lambda c: c.latent is not None),
    ("groups of experts", lambda c: c.experts is not None and c.experts.groups > 1),
    ("output gates", lambda c: c.output_gate),
    ("grouped heads", lambda c: 1 < c.kv_heads < c.heads),
    ("one KV head", lambda c: c.kv_heads == 1 < c.heads),
    ("learned positions", lambda c: c.position_rows > 0),
    ("ALiBi", lambda c: c.alibi is not None),
    *(
        (words, lambda c, kind=kind: c.rope is not None and c.rope.kind == kind)
        for kind, words in _ROPE.items()
    ),
    ("a part of heads rotated", lambda c: c.rope is not None and c.rope.width > 0),
    ("layers without rotation", lambda c: bool(c.unrotated)),
    ("rotary base by layer", lambda c: c.local_rope is not None),
    ("windows", lambda c: bool(c.windows) and all(c.windows)),
    ("windows in some layers", lambda c: bool(c.windows) and not all(c.windows)),
    ("soft caps", lambda c: c.score_cap > 0 or c.logit_cap > 0),
    (
        "factors of scores, embeddings, branches or logits",
        lambda c: (
            (c.embed_scale, c.branch_scale, c.logit_scale, c.scale_scores, c.scale_by_layer)
            != (1, 1, 1, True, False)
            or c.score_factor is not None
            or (c.gate_scale, c.mixer_scales) != (1, (1, 1, 1))
        ),
    ),
    ("scaled residual stream", lambda c: c.stream_scale != 1),
    ("projected embeddings", lambda c: c.embed_dim != c.hidden),
    ("biases", lambda c: c.qkv_bias or c.o_bias or c.mlp_bias),
    ("bias of lm_head", lambda c: c.head_bias),
    ("tied lm_head", lambda c: c.tied),
)


def features(*configs: ModelConfig) -> tuple[str, ...]:
    """What any of the configurations asks for."""
    return tuple(words for words, has in _FEATURES if any(map(has, configs)))
