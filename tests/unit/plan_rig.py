"""Small models, boards and overlays for tests of planning and lowering."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lora_host.boards import Board
from lora_host.overlay import Overlay, load_overlay
from lora_sdk.model.block import describe
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import MatrixFormat, Quantization, routes
from lora_sdk.model.spec import (
    ExpertConfig,
    LatentConfig,
    ModelConfig,
    RecurrentConfig,
    RopeConfig,
    SigmoidRouting,
)

LLAMA = ModelConfig(
    architecture="llama", layers=3, hidden=144, heads=9, kv_heads=3, head_dim=16, ffn=200,
    vocabulary=301, positions=256, embed_dim=144, norm="rmsnorm", norm_eps=1e-5, norm_first=True,
    final_norm=True, norm_affine=True, activation="silu", gated=True,
    rope=RopeConfig("default", 1e4), position_rows=0, position_offset=0, tied=False,
)  # fmt: skip
GPT2 = replace(
    LLAMA, architecture="gpt2", kv_heads=9, norm="layernorm", activation="gelu_tanh", gated=False,
    rope=None, position_rows=256, tied=True, qkv_bias=True, o_bias=True, mlp_bias=True,
)  # fmt: skip
OPT_POST = replace(
    GPT2, architecture="opt", embed_dim=80, norm_first=False, final_norm=False, activation="relu",
    position_rows=258, position_offset=2,
)  # fmt: skip
NARROW = replace(LLAMA, hidden=48, heads=8, kv_heads=2, head_dim=16, ffn=40, embed_dim=48)
EXPERTS = replace(LLAMA, ffn=88, experts=ExpertConfig(5, 3, 72, True, frozenset({0, 2})))
EXPERTS_NARROW = replace(NARROW, experts=ExpertConfig(4, 2, 40, False, frozenset(range(3))))
EXPERTS_SIGMOID = replace(
    LLAMA,
    experts=ExpertConfig(6, 3, 72, True, frozenset({1, 2}), 104, sigmoid=SigmoidRouting(3, 2, 2.5)),
)
EXPERTS_GATED = replace(LLAMA, experts=ExpertConfig(5, 3, 72, False, frozenset({0, 2}), 104, True))
EXPERTS_SHARED = replace(NARROW, experts=replace(EXPERTS_NARROW.experts, shared=40))
EXPERTS_WIDE = replace(  # whole groups of 32 along every K
    EXPERTS_GATED, hidden=160, heads=10, kv_heads=5, embed_dim=160, ffn=224,
    experts=replace(EXPERTS_GATED.experts, ffn=96, shared=64),
)  # fmt: skip
LATENT = replace(  # heads of 12 + 4 columns, of v 12; a latent of q; choices in groups
    LLAMA, kv_heads=9, rope=RopeConfig("default", 1e4, width=4), o_bias=True,
    latent=LatentConfig(104, 72, 4, 12, biased=True),
    experts=ExpertConfig(6, 2, 72, False, frozenset({1, 2}), 104, groups=3, taken=2, factor=2.5),
)  # fmt: skip
LATENT_NARROW = replace(  # fewer units of 32 than boards; v as wide as k; q from the input
    NARROW, kv_heads=8, rope=LATENT.rope, latent=LatentConfig(40, 0, 4, 16),
)  # fmt: skip
LATENT_WIDE = replace(  # whole groups of 32 along every K
    LATENT, hidden=160, heads=8, kv_heads=8, embed_dim=160, ffn=224, o_bias=False,
    latent=LatentConfig(64, 96, 4, 12),
    experts=replace(LATENT.experts, ffn=96, shared=64),
)  # fmt: skip
SHORT_CONV = replace(
    LLAMA, recurrent=RecurrentConfig("short_conv", frozenset({0, 1}), 3, LLAMA.hidden)
)
GATED_DELTA = replace(
    NARROW, output_gate=True,
    recurrent=RecurrentConfig("gated_delta", frozenset({0, 1}), 4, 48, 32, 2, 4),
)  # fmt: skip
MODELS = {"llama": LLAMA, "gpt2": GPT2, "opt_post": OPT_POST, "narrow": NARROW}
LLAMA2_7B = replace(
    LLAMA, layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008,
    vocabulary=32000, positions=4096, embed_dim=4096,
)  # fmt: skip


def quantized(config: ModelConfig, scheme: str) -> ModelConfig:
    """The model in "w8a8" with INT8 attention or, "_heads", INT8 by head; "w4a8", "w4a16" in groups
    of 32, "_order" with permuted inputs, "_dynamic" with a scale per row of inputs. lm_head is
    INT8, OPT's projections are FP16."""
    kind, _, more = scheme.partition("_")
    group = None if kind == "w8a8" else 32
    dynamic = "dynamic" in more
    chosen = MatrixFormat("int8" if kind == "w8a8" else kind, group, dynamic)
    parts = ("q", "k", "v", "o", "up", "down", *(["gate"] if config.gated else []))
    names = [f"layer.{layer}.{part}" for layer in range(config.layers) for part in parts]
    if config.experts is not None or config.latent is not None:
        names = [
            name
            for matmul in describe(config).matmuls
            for name in matmul.tensors
            if matmul.layer is not None and not routes(name)
        ]
    formats = {**dict.fromkeys(names, chosen), "lm_head": MatrixFormat("int8", None, dynamic)}
    kv: KvKind = "int8" if scheme == "w8a8" else "int8-heads" if more == "heads" else "fp16"
    order = frozenset(names if "order" in more else ())
    return replace(config, quantization=Quantization(scheme, formats, kv, order))


def overlay(**changes: Any) -> Overlay:
    """The shipped U280 overlay with some fields changed."""
    return replace(load_overlay("lora_f_u280"), **changes)


def board(hbm: int | None = None, ddr: int | None = None) -> Board:
    """A U280 whose banks have so many usable bytes."""
    whole = load_overlay("lora_f_u280").board
    sizes = {"hbm": hbm, "ddr": ddr}
    return replace(
        whole,
        banks=tuple(replace(bank, usable=sizes[bank.kind] or bank.usable) for bank in whole.banks),
    )
