"""lora_sdk: large language models on clusters of FPGA boards, emulated where there is no board.

    from lora_sdk import Engine, SamplingParams

    with Engine(boards=4) as engine:
        print(engine.generate("Once upon a time", SamplingParams(max_tokens=32)).text)

Names are imported when first used: importing the package touches neither boards nor environment.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_host.errors import (
        AdapterError,
        CommandError,
        HangError,
        LinkError,
        LoraError,
        ModelError,
        OverlayError,
        PlacementError,
        RequestError,
        RowsLostError,
        TransportError,
    )
    from lora_sdk.engine.engine import Engine
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.kv.kv_statistics import KvUse
    from lora_sdk.model.demo import demo_model_path
    from lora_sdk.opening.loading_bar import LoadingBar
    from lora_sdk.opening.options import Progress
    from lora_sdk.opening.speculation_options import SpeculationOptions
    from lora_sdk.opening.weight_notices import OnNotice, WeightNotice
    from lora_sdk.recovery.recovery import Recovered
    from lora_sdk.sampling import BeamSearchParams, SamplingParams
    from lora_sdk.sampling.logprobs import PositionLogprobs, TokenLogprob
    from lora_sdk.sampling.params import AllowedTokens
    from lora_sdk.step.results import Delta, Output, Result, Timing, Verified
    from lora_sdk.step.speculation_statistics import SpeculationStatistics
    from lora_sdk.step.step import Row, StepResult
    from lora_sdk.step.tree_shape import TreeShape
    from lora_sdk.step.verify import Tree

__version__ = "0.1.0"  # pyproject.toml reads it here

_HOMES = {
    "lora_host.errors": (
        "AdapterError",
        "CommandError",
        "HangError",
        "LinkError",
        "LoraError",
        "ModelError",
        "OverlayError",
        "PlacementError",
        "RequestError",
        "RowsLostError",
        "TransportError",
    ),
    "lora_sdk.model.demo": ("demo_model_path",),
    "lora_sdk.engine.engine": ("Engine",),
    "lora_sdk.kv.kv_arrays": ("KvArrays",),
    "lora_sdk.kv.kv_statistics": ("KvUse",),
    "lora_sdk.opening.loading_bar": ("LoadingBar",),
    "lora_sdk.opening.options": ("Progress",),
    "lora_sdk.recovery.recovery": ("Recovered",),
    "lora_sdk.step.results": ("Output", "Delta", "Result", "Timing", "Verified"),
    "lora_sdk.step.speculation_statistics": ("SpeculationStatistics",),
    "lora_sdk.sampling": ("BeamSearchParams", "SamplingParams"),
    "lora_sdk.sampling.logprobs": ("PositionLogprobs", "TokenLogprob"),
    "lora_sdk.sampling.params": ("AllowedTokens",),
    "lora_sdk.opening.speculation_options": ("SpeculationOptions",),
    "lora_sdk.step.step": ("Row", "StepResult"),
    "lora_sdk.step.tree_shape": ("TreeShape",),
    "lora_sdk.step.verify": ("Tree",),
    "lora_sdk.opening.weight_notices": ("OnNotice", "WeightNotice"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdapterError",
    "AllowedTokens",
    "BeamSearchParams",
    "CommandError",
    "Delta",
    "Engine",
    "HangError",
    "KvArrays",
    "KvUse",
    "LinkError",
    "LoadingBar",
    "LoraError",
    "ModelError",
    "OnNotice",
    "Output",
    "OverlayError",
    "PlacementError",
    "PositionLogprobs",
    "Progress",
    "Recovered",
    "RequestError",
    "Result",
    "Row",
    "RowsLostError",
    "SamplingParams",
    "SpeculationOptions",
    "SpeculationStatistics",
    "StepResult",
    "Timing",
    "TokenLogprob",
    "TransportError",
    "Tree",
    "TreeShape",
    "Verified",
    "WeightNotice",
    "__version__",
    "demo_model_path",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
