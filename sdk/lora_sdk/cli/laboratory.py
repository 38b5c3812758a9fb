"""What commands ask the laboratory, where it is installed: modelled times, random models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from lora_sdk.optional import optional_module

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.plan.segment_kv import BeamLoad

MISSING = "modelled times: left out, the package lora_lab is not installed here"


class ModelledRun(Protocol):
    """Modelled times of the steps that an engine runs."""

    def lines(self) -> list[str]:
        """For people."""

    def card_cycles(self, lanes: int, latency: float) -> float | None:
        """Cycles of a simulated card for these steps; None for several boards."""

    def write_trace(self, path: Path) -> int:
        """Write a Perfetto trace. Returns the number of events that were dropped."""


class Laboratory(Protocol):
    """Names of lora_lab.product."""

    def time_engine(self, engine: Engine) -> ModelledRun:
        """Record the steps of an engine from now on."""

    def token_times(self, config: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
        """Of a placed model's tokens."""

    def token_lines(self, times: list[dict[str, Any]]) -> list[str]:
        """The same for people."""

    def beam_times(
        self, config: ModelConfig, plan: Plan, load: BeamLoad, batches: Mapping[str, int]
    ) -> dict[str, Any]:
        """Of beam search."""

    def beam_time_lines(self, found: Mapping[str, Any]) -> list[str]:
        """The same for people."""


def laboratory() -> Laboratory | None:
    """None where it is not installed."""
    return cast("Laboratory | None", optional_module("lora_lab.product"))
