"""Metadata of a GGUF file as the fields of config.json, which the families read. Keys that would
change the arithmetic and are not known here are refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lora_host.errors import ModelError
from lora_sdk.gguf.blocks import check_readable
from lora_sdk.gguf.file import GgufFile
from lora_sdk.gguf.values import Array
from lora_sdk.model.fields import MAX_POSITIONS
from lora_sdk.model.gguf_architectures import (
    ARCHITECTURES,
    INTEGERS,
    PATTERN,
    READ,
    SHARED_FFN,
    WINDOW,
    Architecture,
)
from lora_sdk.model.gguf_rope import KEYS, read_scaling
from lora_sdk.model.rope_fields import DEFAULT_THETA
from lora_sdk.model.windows import FULL, SLIDING

HEAD = "output.weight"
EMBEDDING = "token_embd.weight"
ENDS = ("eos", "eot", "eom")  # tokens after which llama.cpp ends a text, too


def architecture_of(file: GgufFile) -> Architecture:
    """The row of the file's architecture. ModelError: one that is not supported, or a file that
    is no whole model, or has a tensor of a type that is not read."""
    name = file.metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        raise file.metadata.error(
            "general.architecture", name, "one of " + ", ".join(ARCHITECTURES)
        )
    kind = file.metadata.text("general.type", "model")
    if kind != "model":
        raise file.metadata.error("general.type", kind, "model: the file is no whole model")
    for tensor in file.tensors.values():
        check_readable(tensor.type, f"{file.path}: tensor {tensor.name}")
    return ARCHITECTURES[name]


def config_values(file: GgufFile) -> dict[str, Any]:
    """config.json's fields of the model in a file. ModelError names a key that is missing, wrong or
    not supported."""
    row = architecture_of(file)
    reader = _Reader(file, row)
    reader.refuse_unknown()
    values: dict[str, Any] = {"model_type": row.model_type}
    values |= reader.sizes() | reader.more() | reader.experts()
    values |= reader.layers_with_windows(values)
    values |= {name: tensor in file.tensors for name, tensor in row.present.items()}
    values |= reader.rope(values)
    values |= reader.tokens()
    if row.derived is not None:
        values |= row.derived(values, file.tensors)
    values["tie_word_embeddings"] = HEAD not in file.tensors
    return values


class _Reader:
    """Reads the keys of one architecture."""

    def __init__(self, file: GgufFile, row: Architecture) -> None:
        self._file, self._row, self._metadata = file, row, file.metadata
        self._lead = file.metadata.text("general.architecture") + "."

    def refuse_unknown(self) -> None:
        """ModelError names a key of the architecture that nothing here knows."""
        known = {*INTEGERS, *READ, *KEYS, *self._row.more, *self._row.experts, self._row.eps[0]}
        if self._row.window:
            known.add(WINDOW)
        if self._row.period:
            known.add(PATTERN)
        for key, value in self._metadata.values.items():
            if key.startswith(self._lead) and key.removeprefix(self._lead) not in known:
                raise self._metadata.error(key, value, "no such key: what it asks for is unknown")
        for name in ("expert_count", "expert_used_count") if not self._row.experts else ():
            count = self._integer(name, 0, 0)
            if count:
                raise self._metadata.error(
                    self._lead + name, count, "0: this architecture has no experts here"
                )
        if not self._metadata.flag(self._lead + "attention.causal", True):
            raise self._metadata.error(self._lead + "attention.causal", False, "true")
        for name, allowed in (("attention.clamp_kqv", 0.0), ("attention.max_alibi_bias", 8.0)):
            found = self._metadata.number(self._lead + name, allowed)
            if found != allowed:
                raise self._metadata.error(self._lead + name, found, f"{allowed:g} or no such key")

    def sizes(self) -> dict[str, Any]:
        """Whole numbers, and the norms' epsilon."""
        table = self._file.tensors.get(EMBEDDING)
        if table is None or len(table.shape) != 2:
            raise ModelError(
                f"{self._file.path}: {EMBEDDING} is missing, expected [tokens, columns]"
            )
        values: dict[str, Any] = {"vocab_size": table.shape[0]}
        for key, name in INTEGERS.items():
            field = self._row.fields.get(name, name)
            optional = 0 if key == "attention.head_count_kv" else None
            high = MAX_POSITIONS if key == "context_length" else 2**24
            found = self._integer(key, optional, 1 if optional is None else 0, high)
            if field is not None:
                values[field] = found or self._integer("attention.head_count", None, 1)
        if self._row.window:
            window = self._integer(WINDOW, 0, 0, 2**31)
            values |= {"sliding_window": window} if window else {}
        key, name = self._row.eps
        values[name] = self._metadata.number(self._lead + key)
        return values

    def experts(self) -> dict[str, Any]:
        """Whole numbers of a mixture of experts; none in a file of LLaMA without experts."""
        if self._row.model_type == "llama" and not self._integer("expert_count", 0, 0):
            return {}
        optional = (SHARED_FFN,) if self._row.model_type == "granitemoe" else ()
        return {
            name: self._integer(key, 0 if key in optional else None, int(key not in optional))
            for key, name in self._row.experts.items()
        }

    def layers_with_windows(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Which layers slide, where the family has both kinds: all but every n-th, by a number or
        the family's own; or a flag for each layer."""
        if not self._row.period:
            return {}
        layers = values["num_hidden_layers"]
        key = self._lead + PATTERN
        if isinstance(self._metadata.values.get(key), Array):
            flags = self._metadata.numbers(key, layers).tolist()
        else:
            period = self._integer(PATTERN, self._row.period, 1)
            flags = [layer % period < period - 1 for layer in range(layers)]
        if self._row.model_type == "gemma3_text" and "sliding_window" not in values:
            flags = [False] * layers
        return {"layer_types": [SLIDING if flag else FULL for flag in flags]}

    def more(self) -> dict[str, Any]:
        """Numbers and flags of this architecture only."""
        found: dict[str, Any] = {}
        for key, name in self._row.more.items():
            full = self._lead + key
            if full in self._metadata.values:
                is_flag = isinstance(self._metadata.values[full], bool)
                read = self._metadata.flag if is_flag else self._metadata.number
                found[name] = read(full, None)  # type: ignore[arg-type]
        return found

    def rope(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Rotary positions: the size of a head, the part of it, base and scaling."""
        heads, hidden = values["num_attention_heads"], values["hidden_size"]
        plain = hidden // heads
        width = self._integer("rope.dimension_count", 0, 0, 4096)
        default = plain if self._row.rotary or not width else width
        size = self._integer("attention.key_length", default, 1, 4096)
        if self._integer("attention.value_length", size, 1, 4096) != size:
            key = self._lead + "attention.value_length"
            raise self._metadata.error(key, self._metadata.values[key], f"key_length {size}")
        named = self._lead + "attention.key_length" in self._metadata.values
        found: dict[str, Any] = {"head_dim": size} if named or size * heads != hidden else {}
        width = width or size
        if width != size:
            found |= self._part(width, size)
        if self._lead + "rope.freq_base" in self._metadata.values:
            found["rope_theta"] = self._metadata.number(self._lead + "rope.freq_base")
        positions = self._integer("context_length", None, 1, MAX_POSITIONS)
        theta = found.get("rope_theta", DEFAULT_THETA)
        return found | read_scaling(self._file, self._lead, positions, theta, width)

    def _part(self, width: int, size: int) -> dict[str, Any]:
        key = self._lead + "rope.dimension_count"
        if self._row.rotary is None or width > size:
            raise self._metadata.error(key, width, f"the size of a head, {size}")
        factor = width / size
        if int(size * factor) < width:
            factor = math.nextafter(factor, 1.0)
        return {self._row.rotary: factor}

    def tokens(self) -> dict[str, Any]:
        """Token ids; every token that ends a text is one of `eos_token_id`."""
        found: dict[str, Any] = {}
        for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
            value = self._token(key)
            found |= {} if value is None else {name: value}
        ends = [token for token in map(self._token, ENDS) if token is not None]
        if ends:
            found["eos_token_id"] = list(dict.fromkeys(ends)) if len(set(ends)) > 1 else ends[0]
        return found

    def _token(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in self._metadata.values:
            return None
        value = self._metadata.integer(key, None, 0, 2**32 - 1)
        return None if value == 2**32 - 1 else value  # an old way to say none

    def _integer(self, key: str, default: int | None, low: int, high: int = 2**24) -> int:
        return self._metadata.integer(self._lead + key, default, low, high)
