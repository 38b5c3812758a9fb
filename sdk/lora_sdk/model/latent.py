"""Latent attention: how q, k and v are made from latents (docs/numbers.md, 3.21)."""

from __future__ import annotations

from collections.abc import Iterator

from lora_sdk.model.operations import (
    Axis,
    Buffer,
    JoinHeads,
    Matmul,
    Norm,
    Operation,
    Output,
    width,
)
from lora_sdk.model.spec import ModelConfig

Q_A = Buffer("q_a", ("q_latent",))
KV_A = Buffer("kv_a", ("kv_latent", "rope_key"))
Q_LATENT = Buffer("q_latent", ("q_latent",), gathered=True)
KV_LATENT = Buffer("kv_latent", ("kv_latent",), gathered=True)
EXPANDED = Buffer("expanded", ("kv_nope", "kv_values"))
ATTENDED = Buffer("attended", ("heads",))


def buffers(config: ModelConfig) -> list[Buffer]:
    """Those that latent attention has beside the others; none without it."""
    latent = config.latent
    if latent is None:
        return []
    of_q = [Q_A, Q_LATENT] if latent.q else []
    return [*of_q, KV_A, KV_LATENT, EXPANDED, *filter(None, [attended(config)])]


def attended(config: ModelConfig) -> Buffer | None:
    """Attention's output where its heads are wider than those of v; else None."""
    narrow = config.latent is not None and config.latent.values < config.head_dim
    return ATTENDED if narrow else None


def operations(config: ModelConfig, layer: int, source: Buffer, qkv: Buffer) -> Iterator[Operation]:
    """From rows of a layer's input, gathered, to q, k and v, not yet rotated."""
    latent, lead = config.latent, f"layer.{layer}"
    assert latent is not None

    def matmul(
        name: str, read: Buffer, target: Buffer, parts: dict[str, Axis], biased: bool = False,
        input_of: str | None = None,
    ) -> Matmul:  # fmt: skip
        return Matmul(
            layer=layer, name=f"{lead}.{name}", source=read, target=target,
            k=width(config, read.axes[0]), bias=biased, input_of=input_of,
            outputs=tuple(Output(f"{lead}.{part}", axis) for part, axis in parts.items()),
        )  # fmt: skip

    def norm(name: str, own: Buffer, target: Buffer) -> Norm:
        return Norm(layer=layer, name=f"{lead}.{name}_norm", source=own, target=target,
                    kind="rmsnorm", vectors=("gamma",), eps=latent.eps)  # fmt: skip

    first = f"{lead}.kv_a"
    keys: dict[str, Axis] = {"kv_a": "kv_latent", "k_rope": "rope_key"}
    yield matmul("kv_a", source, KV_A, keys, latent.biased)
    if latent.q:
        yield matmul("q_a", source, Q_A, {"q_a": "q_latent"}, latent.biased, first)
        yield norm("q_a", Q_A, Q_LATENT)
        yield matmul("q", Q_LATENT, qkv, {"q": "heads"})
    else:
        yield matmul("q", source, qkv, {"q": "heads"}, False, first)
    yield norm("kv_a", KV_A, KV_LATENT)
    yield matmul("kv", KV_LATENT, EXPANDED, {"k": "kv_nope", "v": "kv_values"})
    yield JoinHeads(layer=layer, source=EXPANDED, shared=KV_A, target=qkv, part="k")
    yield JoinHeads(layer=layer, source=EXPANDED, target=qkv, part="v")
