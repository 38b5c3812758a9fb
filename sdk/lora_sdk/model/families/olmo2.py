"""OLMo 2: norms of the branches' outputs instead of those before them, RMSNorms over the whole rows
of q and k."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(ffn=11008, vocabulary=50304, positions=2048, eps=1e-5)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = with_biases(read_decoder(fields, "olmo2", DEFAULTS), fields)
    return replace(config, head_norms="row", branch_norms="alone")
