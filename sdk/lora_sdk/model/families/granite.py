"""Granite: LLaMA with factors of embeddings, scores, branches and logits."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(ffn=11008, vocabulary=32000, positions=2048)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    return with_factors(with_biases(read_decoder(fields, "granite", DEFAULTS), fields), fields)


def with_factors(config: ModelConfig, fields: Fields) -> ModelConfig:
    """`config` with the factors that Granite's fields name."""
    return replace(
        config,
        embed_scale=fields.number("embedding_multiplier", 1.0),
        branch_scale=fields.number("residual_multiplier", 1.0),
        score_factor=fields.number("attention_multiplier", 1.0),
        logit_scale=1 / fields.number("logits_scaling", 1.0),
    )
