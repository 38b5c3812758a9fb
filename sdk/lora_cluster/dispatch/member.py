"""What a fleet asks of its engines: an Engine, or one that runs in another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lora_host.errors import LoraError
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.engine.requests import OnDelta, Request
    from lora_sdk.engine.submission import Prompt
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.weight_notices import WeightNotices
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.prefill.job import PrefillUse
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.text.chat import Message
    from lora_sdk.text.tokenizer import Tokenizer


class Requests(Protocol):
    """See RequestApi."""

    def make(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_delta: OnDelta | None = None,
        index: int | None = None,
    ) -> Request:
        """See RequestMaker.request."""

    def start(self, request: Request, /) -> None:
        """Run a request. Does not wait. RequestError: the engine is closed."""

    def take(self, request: Request, /) -> bool:
        """See RequestApi.take."""


class Member(Protocol):
    """An engine of a fleet. Names and meanings are those of Engine."""

    model_path: Path

    @property
    def requests(self) -> Requests: ...
    @property
    def config(self) -> ModelConfig: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def context(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def movable(self) -> bool: ...
    @property
    def lost(self) -> LoraError | None: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def prefill_use(self) -> PrefillUse | None: ...
    @property
    def weight_notices(self) -> WeightNotices: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    def chat_tokens(self, messages: Sequence[Message]) -> list[int]: ...
    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo: ...
    def unload_adapter(self, name: str) -> None: ...
    def adapters(self) -> list[AdapterInfo]: ...
    def check_adapter(self, name: str) -> None: ...
    def confirm(self) -> None: ...
    def close(self) -> None: ...
