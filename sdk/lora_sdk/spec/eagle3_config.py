"""config.json of an EAGLE-3 head: LLaMA's fields and those of the head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lora_host.errors import ModelError
from lora_sdk.model.families import llama
from lora_sdk.model.fields import Fields
from lora_sdk.model.json_file import read_json
from lora_sdk.model.refused import HARMLESS, refuse_unsupported
from lora_sdk.model.spec import ModelConfig

_AUXILIARY = 3  # hidden states of the target that a head combines


@dataclass(frozen=True)
class HeadConfig:
    """`layer` describes the head's one layer and its RoPE; its `vocabulary` is the target's.

    `draft_vocabulary`: rows of the head's output matrix. `target_hidden`: width of the target's
    hidden states. `layers`: the target's layers whose inputs the head combines, None if the config
    names none. `norm_before_residual`: the layer's residual is the normalized state."""

    layer: ModelConfig
    draft_vocabulary: int
    target_hidden: int
    layers: tuple[int, ...] | None
    norm_before_residual: bool

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        """The target's layers whose inputs the head combines. ModelError if it has fewer."""
        layers = self.layers or (2, target_layers // 2, target_layers - 3)
        if any(not 0 <= layer <= target_layers for layer in layers):
            raise ModelError(
                f"the draft's head combines the inputs of layers {list(layers)}, the model has "
                f"{target_layers}; expected a head that was trained for this model"
            )
        return layers


def load_head_config(folder: Path) -> HeadConfig:
    """Read a head's config.json. ModelError names the file and the field."""
    path = folder / "config.json"
    fields = Fields(read_json(path), str(path))
    refuse_unsupported(fields)
    layer = llama.normalize(fields)
    if layer.layers != 1:
        raise fields.error("num_hidden_layers", layer.layers, "1: an EAGLE-3 head has one layer")
    if layer.qkv_bias or layer.o_bias or layer.mlp_bias:
        raise ModelError(f"{path}: biases of a head's layer are not supported")
    config = HeadConfig(
        layer=layer,
        draft_vocabulary=fields.integer("draft_vocab_size", layer.vocabulary),
        target_hidden=fields.integer("target_hidden_size", layer.hidden),
        layers=_layers(fields),
        norm_before_residual=fields.flag("norm_before_residual", False),
    )
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        fields.raw(name)
    fields.warn_unknown(HARMLESS)
    return config


def _layers(fields: Fields) -> tuple[int, ...] | None:
    name, value = fields.raw("eagle_aux_hidden_state_layer_ids")
    if value is None:  # newer files store it in a nested object
        inner = fields.raw("eagle_config", {})[1]
        value = inner.get(name) if isinstance(inner, dict) else None
    if value is None:
        return None
    good = isinstance(value, list) and len(value) == _AUXILIARY
    if not good or any(type(entry) is not int or entry < 0 for entry in value):
        raise fields.error(name, value, f"{_AUXILIARY} layers")
    return tuple(value)
