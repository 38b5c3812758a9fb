"""Where K and V of prompts come from, as `kv_connector_extra_config` says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lora_host.errors import RequestError
from lora_sdk.opening.options import PREFILL_MODES
from lora_sdk.opening.worker_name import parse_worker

if TYPE_CHECKING:
    from lora_sdk.opening.options import EngineOptions


@dataclass(frozen=True)
class PrefillSource:
    """The option `prefill` of lora_sdk and its mode. `by_name`: a stock vLLM, which knows prompts
    by name."""

    text: str
    mode: str
    by_name: bool

    @property
    def fast(self) -> bool:
        """Whether K and V are not the boards' own."""
        return self.mode == "fast"

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> PrefillSource:
        """RequestError: what of the configuration is wrong."""
        unknown = sorted(set(extra) - {"prefill", "prefill_mode"})
        if unknown:
            raise RequestError(
                f"kv_connector_extra_config has {unknown[0]!r:.40}; boards know prefill and "
                "prefill_mode"
            )
        text = extra.get("prefill")
        if not isinstance(text, str):
            raise RequestError(
                f"kv_connector_extra_config: prefill is {text!r:.60}; expected a worker, e.g. "
                "'vllm:/tmp/lora-kv.sock' or 'boards:1'"
            )
        mode = extra.get("prefill_mode", "fast" if text.startswith("vllm:") else "exact")
        if mode not in PREFILL_MODES:
            raise RequestError(
                f"kv_connector_extra_config: prefill_mode is {mode!r:.40}; expected one of "
                f"{', '.join(PREFILL_MODES)}"
            )
        return cls(text, mode, parse_worker(text, mode == "fast").socket is not None)

    def options(self, options: EngineOptions) -> EngineOptions:
        """An engine's options with this worker. RequestError."""
        return replace(options, prefill=self.text, prefill_mode=self.mode)
