"""Counts of prompts that a worker computed, in vLLM's metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from lora_sdk.opening.options import PREFILL_MODES

FAILED = "failed"
PROMPTS = "vllm:boards_prefill_prompts"
TOKENS = "vllm:boards_prefill_tokens"
FAILURES = "vllm:boards_prefill_failed"


@dataclass
class PrefillStats(KVConnectorStats):
    """`data`: prompts and tokens by mode, and those that the boards computed after all."""

    data: dict[str, Any] = field(default_factory=dict)

    def add(self, mode: str, tokens: int) -> None:
        """A prompt was handed over."""
        prompts, before = self.data.get(mode, (0, 0))
        self.data[mode] = (prompts + 1, before + tokens)

    def add_failed(self) -> None:
        """A prompt did not come."""
        self.data[FAILED] = self.data.get(FAILED, 0) + 1

    def reset(self) -> None:
        """See KVConnectorStats."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> PrefillStats:
        """See KVConnectorStats."""
        for mode in PREFILL_MODES:
            if mode in other.data:
                prompts, tokens = self.data.get(mode, (0, 0))
                more = other.data[mode]
                self.data[mode] = (prompts + more[0], tokens + more[1])
        if FAILED in other.data:
            self.data[FAILED] = self.data.get(FAILED, 0) + other.data[FAILED]
        return self

    def reduce(self) -> dict[str, int | float]:
        """See KVConnectorStats."""
        found: dict[str, int | float] = {}
        for mode in PREFILL_MODES:
            if mode in self.data:
                found[f"{mode} prompts"], found[f"{mode} tokens"] = self.data[mode]
        if FAILED in self.data:
            found[FAILED] = self.data[FAILED]
        return found

    def is_empty(self) -> bool:
        """See KVConnectorStats."""
        return not self.data


class PrefillMetrics(KVConnectorPromMetrics):
    """Named as vLLM's own, which it forgets with an engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._values = per_engine_labelvalues
        by_mode = [*labelnames, "mode"]
        self._prompts = self._counter_cls(
            name=PROMPTS, documentation="Prompts that a worker computed", labelnames=by_mode
        )
        self._tokens = self._counter_cls(
            name=TOKENS, documentation="Tokens of these", labelnames=by_mode
        )
        self._failures = self._counter_cls(
            name=FAILURES,
            documentation="Prompts that boards computed in a worker's place",
            labelnames=labelnames,
        )
        for values in per_engine_labelvalues.values():
            self._failures.labels(*values)
            for mode in PREFILL_MODES:
                self._prompts.labels(*values, mode)
                self._tokens.labels(*values, mode)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add the counts of a step."""
        values = self._values[engine_idx]
        for mode in PREFILL_MODES:
            prompts, tokens = transfer_stats_data.get(mode, (0, 0))
            self._prompts.labels(*values, mode).inc(prompts)
            self._tokens.labels(*values, mode).inc(tokens)
        self._failures.labels(*values).inc(transfer_stats_data.get(FAILED, 0))
