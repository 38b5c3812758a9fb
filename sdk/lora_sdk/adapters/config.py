"""adapter_config.json of a PEFT folder: the supported fields. All others are refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_host.errors import AdapterError
from lora_host.regular_file import names_no_file, read_regular
from lora_sdk.adapters import patterns
from lora_sdk.model.json_file import MAX_JSON_BYTES

FILE = "adapter_config.json"
MAX_PATTERNS = 4096
ALL_LINEAR = "all-linear"
_NO_LINEAR = ("lm_head", "project_in", "project_out")

# Fields that change the result, and the values under which they do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "lora_bias": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (None, False),
    "arrow_config": (None,),
    "megatron_config": (None,),
    "monteclora_config": (None,),
    "velora_config": (None,),
    "kasa_config": (None,),
}
# Values of init_lora_weights, in lower case. These set A and B only, and the folder holds both.
_BASE_KEPT = ("gaussian", "eva", "orthogonal", "mica")
# These subtract the initial adapter from the base weights (prefixes of the values).
_BASE_SUBTRACTED = ("pissa", "corda", "olora", "lora_ga")
_BASE_QUANTIZED = ("loftq",)
# Fields that record how the adapter was trained, and fields that are read below.
_KNOWN = {
    "peft_type", "task_type", "auto_mapping", "base_model_name_or_path", "revision", "peft_version",
    "inference_mode", "r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules",
    "fan_in_fan_out", "use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern",
    "rank_pattern", "alpha_pattern", "megatron_core", "loftq_config", "eva_config", "corda_config",
    "lora_ga_config", "runtime_config", "qalora_group_size", "use_bdlora", "ensure_weight_tying",
}  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """use_bdlora: the modules whose A or B is block-diagonal, by substrings of their names."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    count: int
    strict: bool

    def side(self, module: str) -> str | None:
        """The block-diagonal factor of `module`: "a", "b", or None if neither is."""
        a = any(pattern in module for pattern in self.a)
        b = any(pattern in module for pattern in self.b)
        if a and b:
            raise AdapterError(f"use_bdlora names {module} in both lists; expected one of them")
        if not a and not b and self.strict:
            raise AdapterError(
                f"use_bdlora names {module} in neither list; expected one, or match_strict false"
            )
        return "a" if a else "b" if b else None


@dataclass(frozen=True)
class PeftConfig:
    """The fields of adapter_config.json that decide the arithmetic."""

    rank: int
    alpha: float
    rslora: bool
    targets: str | tuple[str, ...]
    excluded: str | tuple[str, ...]
    layers: tuple[int, ...] | None
    layers_pattern: tuple[str, ...]
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    blocks: Blocks | None

    def rank_of(self, module: str) -> int:
        """The rank that the configuration gives a module."""
        return int(_by_pattern(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        """alpha/r, or alpha/sqrt(r) with rsLoRA."""
        rank = self.rank_of(module)
        alpha = float(_by_pattern(self.alpha_pattern, module, self.alpha))
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank

    def has(self, module: str) -> bool:
        """Whether a module (its name without base_model.model) is adapted."""
        if _named(self.excluded, module) or not _named(self.targets, module):
            return False
        if self.layers is None or isinstance(self.targets, str):
            return True
        found = self._layer(module)
        return found is not None and found in self.layers

    def _layer(self, module: str) -> int | None:
        names = self.layers_pattern or (r"[^.]*",)
        found = (patterns.layer_after(pattern, module) for pattern in names)
        return next((layer for layer in found if layer is not None), None)


def _named(names: str | tuple[str, ...], module: str) -> bool:
    if names == ALL_LINEAR:
        lead, _, last = module.rpartition(".")
        return bool(lead) and last not in _NO_LINEAR
    if isinstance(names, str):
        return bool(names) and patterns.whole(names).fullmatch(module)
    return any(module == name or module.endswith(f".{name}") for name in names)


def _by_pattern(keys: Mapping[str, Any], module: str, default: Any) -> Any:
    for key, value in keys.items():
        if patterns.ends_with(key, module):
            return value
    return default


def load_peft_config(folder: Path) -> PeftConfig:
    """Read and check a PEFT folder's configuration. AdapterError names the field, the value found
    and the value expected."""
    path = folder / FILE
    try:
        values = json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8"))
    except OSError as error:
        raise AdapterError(
            f"{path}: {error.strerror or error}; expected a folder as PEFT saves it",
            usage=names_no_file(error),
        ) from None
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{path}: no JSON: {error}") from None
    if not isinstance(values, dict):
        raise AdapterError(f"{path}: a {type(values).__name__}, expected an object")
    try:
        return parse(values)
    except AdapterError as error:
        raise AdapterError(f"{folder}/{error}") from None


def parse(values: Mapping[str, Any]) -> PeftConfig:
    """As load_peft_config, for the parsed JSON object."""
    if values.get("peft_type") != "LORA":
        raise _refused("peft_type", values.get("peft_type"), '"LORA"')
    for name, neutral in _NEUTRAL.items():
        if name in values and values[name] not in neutral:
            raise _refused(name, values[name], f"{neutral[-1]!r}: it is not supported")
    _check_initialization(values.get("init_lora_weights"))
    unknown = sorted(set(values) - _KNOWN - set(_NEUTRAL))
    given = [name for name in unknown if values[name] not in (None, False, [], {}, "")]
    if given:
        raise _refused(given[0], values[given[0]], "no such field: it may change the result")
    return PeftConfig(
        rank=_integer(values, "r", 8),
        alpha=_number(values.get("lora_alpha", 8), "lora_alpha"),
        rslora=_flag(values, "use_rslora"),
        targets=_names(values, "target_modules"),
        excluded=_names(values, "exclude_modules"),
        layers=_layers(values),
        layers_pattern=_tuple(values, "layers_pattern"),
        rank_pattern=_pattern(values, "rank_pattern", _whole),
        alpha_pattern=_pattern(values, "alpha_pattern", _number),
        blocks=_blocks(values.get("use_bdlora")),
    )


def _check_initialization(value: Any) -> None:
    """Refuse initializations that change the base weights: such an adapter gives wrong results on
    the plain base model."""
    if value is None or isinstance(value, bool):
        return
    name = value.lower() if isinstance(value, str) else ""
    if name in _BASE_KEPT:
        return
    known = f"true, false, {', '.join(map(repr, _BASE_KEPT))}"
    if name.startswith(_BASE_SUBTRACTED):
        known += (
            ": PEFT subtracts the initial adapter from the base weights; convert the adapter to "
            "plain LoRA with PEFT's save_pretrained(OUT, "
            "path_initial_model_for_weight_conversion=INITIAL)"
        )
    elif name.startswith(_BASE_QUANTIZED):
        known += (
            ": PEFT quantizes the base weights; save the base model that PEFT loads with "
            "unload().save_pretrained(OUT), serve that one, and set init_lora_weights to true"
        )
    raise _refused("init_lora_weights", value, known)


def _refused(name: str, found: Any, expected: str) -> AdapterError:
    shown = repr(found[:80]) if isinstance(found, str) else repr(found)[:80]
    return AdapterError(f"{FILE}: {name} is {shown}, expected {expected}")


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 16:
        raise _refused(name, value, "an integer from 1 to 65536")
    return value


def _integer(values: Mapping[str, Any], name: str, default: int) -> int:
    return _whole(values.get(name, default), name)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise _refused(name, value, "a finite number")
    try:
        return float(value)
    except OverflowError:
        raise _refused(name, value, "a finite number") from None


def _flag(values: Mapping[str, Any], name: str) -> bool:
    if values.get(name) not in (None, True, False):
        raise _refused(name, values[name], "true or false")
    return bool(values.get(name))


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise _refused(name, value, "a list of names")
    return tuple(value)


def _names(values: Mapping[str, Any], name: str) -> str | tuple[str, ...]:
    value = values.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        if value == ALL_LINEAR:
            return ALL_LINEAR
        _check_pattern(value, name, lambda: patterns.whole(value))
        return value
    return _texts(value, name)


def _check_pattern(value: str, name: str, check: Callable[[], object]) -> None:
    try:
        check()
    except patterns.PatternFault as error:
        raise _refused(name, value, f"a regular expression: found {error}") from None


def _tuple(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = values.get(name)
    if isinstance(value, str):
        value = [value] if value else []
    found = _texts(value or [], name)
    _check_count(found, name)
    for item in found:
        _check_pattern(item, name, lambda item=item: patterns.check(item, groups=False))  # type: ignore[misc]
    return found


def _layers(values: Mapping[str, Any]) -> tuple[int, ...] | None:
    value = values.get("layers_to_transform")
    if value is None or value == []:
        return None
    found = [value] if isinstance(value, int) else value
    if not isinstance(found, list) or not all(isinstance(i, int) and i >= 0 for i in found):
        raise _refused("layers_to_transform", value, "layer numbers")
    return tuple(found)


def _pattern(values: Mapping[str, Any], name: str, check: Any) -> dict[str, Any]:
    value = values.get(name) or {}
    if not isinstance(value, dict):
        raise _refused(name, value, "an object")
    _check_count(value, name)
    for key in value:
        _check_pattern(key, name, lambda key=key: patterns.check(key))  # type: ignore[misc]
    return {key: check(entry, name) for key, entry in value.items()}


def _check_count(found: Collection[str], name: str) -> None:
    if len(found) > MAX_PATTERNS:
        raise _refused(name, f"of {len(found)} entries", f"at most {MAX_PATTERNS}")


def _blocks(value: Any) -> Blocks | None:
    if value is None or value is False:
        return None
    if not isinstance(value, dict):
        raise _refused("use_bdlora", value, "null or an object")
    known = {"target_modules_bd_a", "target_modules_bd_b", "nblocks", "match_strict"}
    if set(value) - known:
        raise _refused("use_bdlora", value, f"the keys {', '.join(sorted(known))}")
    return Blocks(
        a=_texts(value.get("target_modules_bd_a") or [], "target_modules_bd_a"),
        b=_texts(value.get("target_modules_bd_b") or [], "target_modules_bd_b"),
        count=_integer(value, "nblocks", 1),
        strict=bool(value.get("match_strict", True)),
    )
