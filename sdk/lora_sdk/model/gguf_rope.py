"""Scaled rotary positions of a GGUF file as config.json's `rope_scaling`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.gguf.file import GgufFile
from lora_sdk.model.rope_scaling import inverse_frequencies, longrope_attention
from lora_sdk.model.spec import RopeConfig

FACTORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
LLAMA3 = (1.0, 4.0)  # low_freq_factor and high_freq_factor of every Llama 3
LLAMA3_TOLERANCE = 1e-3  # of a factor: the converter computes them in FP32
ATTENTION_TOLERANCE = 1e-6  # of a number in FP32
ORIGINAL = "original_max_position_embeddings"
YARN = {"rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow"}
KEYS = frozenset(
    ("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
     "rope.scaling.finetuned", "rope.scaling.attn_factor", "rope.scale_linear", *YARN)
)  # fmt: skip


def read_scaling(
    file: GgufFile, lead: str, positions: int, theta: float, width: int
) -> dict[str, Any]:
    """Fields of `width` rotated columns of a head, {} without scaling. `lead`: what the
    keys begin with. ModelError names a key or a tensor that is wrong or not supported."""
    scaling = _Scaling(file, lead, positions, theta, width).read()
    if scaling.get("rope_type") != "longrope":
        return {"rope_scaling": scaling} if scaling else {}
    original = scaling.pop(ORIGINAL)  # at the top level, as the families with longrope have it
    return {"rope_scaling": scaling, ORIGINAL: original}


class _Scaling:
    def __init__(self, file: GgufFile, lead: str, positions: int, theta: float, width: int) -> None:
        self._file, self._metadata, self._lead = file, file.metadata, lead
        self._positions, self._theta, self._width = positions, theta, width

    def read(self) -> dict[str, Any]:
        """The fields; one kind of scaling at most."""
        key = self._lead + "rope.scaling.type"
        kind = self._metadata.text(key, "none")
        old = self._number("rope.scale_linear", 1.0)
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise self._metadata.error(key, kind, "none, linear, yarn or longrope")
        tensors = [name for name in (FACTORS, LONG) if name in self._file.tensors]
        if len(tensors) > 1 or (tensors and kind in ("linear", "yarn")):
            raise self._metadata.error(key, kind, f"none beside {tensors[0]}")
        if LONG in tensors:
            return self._longrope()
        attention = self._number("rope.scaling.attn_factor", 1.0)
        if attention != 1.0:
            name = self._lead + "rope.scaling.attn_factor"
            raise self._metadata.error(name, attention, f"1 without {LONG}")
        if kind == "longrope":
            raise self._metadata.error(key, kind, f"none without {LONG}")
        if FACTORS in tensors:
            return self._llama3()
        if kind == "yarn":
            return self._yarn()
        factor = self._number("rope.scaling.factor", 1.0) if kind == "linear" else old
        return {} if factor == 1.0 else {"rope_type": "linear", "factor": factor}

    def _yarn(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "rope_type": "yarn",
            "factor": self._number("rope.scaling.factor", None),
            ORIGINAL: self._original(),
        }
        for key, name in YARN.items():
            if self._lead + key in self._metadata.values:
                found[name] = self._number(key, None)
        return found

    def _longrope(self) -> dict[str, Any]:
        """The factor of attention is that of the library where the file's is, in FP32."""
        found: dict[str, Any] = {"rope_type": "longrope", ORIGINAL: self._original()}
        for name, tensor in (("long_factor", LONG), ("short_factor", SHORT)):
            found[name] = [float(str(one)) for one in self._factors(tensor)]
        scale = max(self._positions / found[ORIGINAL], 1.0)
        own = longrope_attention(scale, found[ORIGINAL]) if found[ORIGINAL] > 1 else 1.0
        given = self._number("rope.scaling.attn_factor", own)
        if abs(given - own) > ATTENTION_TOLERANCE * own:
            found["attention_factor"] = given
        return found

    def _llama3(self) -> dict[str, Any]:
        """Parameters of Llama 3's scaling whose factors are those of the file."""
        given = self._factors(FACTORS)
        most = float(str(given.max()))
        low, high = LLAMA3
        if (given == 1).all():
            return {}
        plain = inverse_frequencies(RopeConfig("default", self._theta), self._width)
        for power in range(6, 21) if math.isfinite(most) and most > 1 else ():
            rope = RopeConfig("llama3", self._theta, most, low, high, 2**power)
            scaled = inverse_frequencies(rope, self._width)
            factors = plain.astype(np.float64) / scaled.astype(np.float64)
            if np.allclose(factors, given, rtol=LLAMA3_TOLERANCE, atol=0):
                return {
                    "rope_type": "llama3", "factor": most, "low_freq_factor": low,
                    "high_freq_factor": high, ORIGINAL: 2**power,
                }  # fmt: skip
        raise ModelError(
            f"{self._file.path}: {FACTORS}: factors of the rotary frequencies are not those of "
            "Llama 3's scaling, the only one that is supported"
        )

    def _factors(self, name: str) -> NDArray[np.float32]:
        tensor = self._file.tensors.get(name)
        pairs = self._width // 2
        if tensor is None or tensor.type.name != "F32" or tensor.shape != (pairs,):
            found = "missing" if tensor is None else f"{tensor.type.name} {list(tensor.shape)}"
            raise ModelError(f"{self._file.path}: {name} is {found}, expected F32 [{pairs}]")
        factors: NDArray[np.float32] = self._file.raw(tensor).view("<f4")
        if not np.isfinite(factors).all():
            raise ModelError(f"{self._file.path}: {name} has no finite numbers, expected factors")
        return factors

    def _original(self) -> int:
        key = self._lead + "rope.scaling.original_context_length"
        return self._metadata.integer(key, self._positions, 1)

    def _number(self, key: str, default: float | None) -> float:
        return self._metadata.number(self._lead + key, default)
