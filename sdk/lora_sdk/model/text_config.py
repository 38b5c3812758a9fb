"""Multimodal folders: the fields of their text model, which is all that runs here."""

from __future__ import annotations

from lora_sdk.model.fields import Fields

_TEXT = {"gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text",
         "qwen3_5_moe": "qwen3_5_moe_text"}  # fmt: skip
"""model_type of the folder -> that of its `text_config`."""
_OUTER = ("quantization_config", "tie_word_embeddings", "bos_token_id", "eos_token_id",
          "pad_token_id", "transformers_version", "architectures")  # fmt: skip
"""Fields beside `text_config` that are its own, or mean nothing."""


def text_fields(fields: Fields) -> Fields:
    """`fields`, or those of `text_config` where the folder is a known multimodal one. ModelError:
    it has none, or one of another model."""
    kind = fields.raw("model_type")[1]
    if not isinstance(kind, str) or kind not in _TEXT:
        return fields
    inner = fields.raw("text_config")[1]
    if not isinstance(inner, dict):
        raise fields.error("text_config", inner, "an object: that of the text model")
    outer = {name: fields.values[name] for name in _OUTER if fields.values.get(name) is not None}
    named = {"model_type": _TEXT[kind], **inner}
    found = Fields({**named, **outer}, f"{fields.where}: text_config")
    found.choice("model_type", _TEXT[kind], {_TEXT[kind]: None})
    return found
