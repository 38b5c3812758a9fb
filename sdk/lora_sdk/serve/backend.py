"""What stands behind a server: one engine, or something that answers like one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lora_host.errors import HangError
from lora_sdk.serve.board_metrics import BoardReading, board_rows, read_boards
from lora_sdk.serve.served_board import served_boards

if TYPE_CHECKING:
    from lora_host.errors import LoraError
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.engine.engine import Engine
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.weight_notices import WeightNotices
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.step.results import Delta, Result
    from lora_sdk.text.tokenizer import Tokenizer


class ServedEngine(Protocol):
    """What the endpoints ask. Names and meanings are those of Engine."""

    @property
    def model_path(self) -> Path: ...
    @property
    def config(self) -> ModelConfig: ...
    @property
    def context(self) -> int: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def lost(self) -> LoraError | None: ...
    def agenerate(
        self, prompts: Sequence[int], params: SamplingParams
    ) -> Coroutine[Any, Any, Result | list[Result]]: ...
    def astream(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        on_result: Callable[[Result], object] | None = None,
    ) -> AsyncGenerator[Delta, None]: ...
    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo: ...
    def unload_adapter(self, name: str) -> None: ...
    def adapters(self) -> list[AdapterInfo]: ...
    def close(self) -> None: ...


Embed = Callable[["Sequence[int]", str, bool, "str | None", "str | None"], Coroutine[Any, Any, Any]]
"""The embedding, float32 [d], of tokens: pooling, normalize, adapter, salt of the prefix cache."""


class Backend(ABC):
    """An engine and what a server tells of it. `capacity`: sequences that run at once; `embed`:
    its `aembed`, if it was opened for embeddings."""

    engine: ServedEngine
    capacity: int
    embed: Embed | None = None

    @property
    @abstractmethod
    def weight_notices(self) -> WeightNotices:
        """Of damaged weights that were loaded again."""

    @abstractmethod
    def read(self) -> BoardReading:
        """The boards' counts now. May wait for a step."""

    @abstractmethod
    def board_rows(self, reading: BoardReading | None) -> Iterator[dict[str, object]]:
        """The boards, for `/status`."""

    @abstractmethod
    def is_end(self, error: LoraError) -> bool:
        """Whether nothing can be served any more after this error of a request."""


class EngineBackend(Backend):
    """One engine."""

    engine: Engine

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capacity = engine.plan.max_sequences
        self.embed = engine.aembed if engine.plan.final_states else None

    @property
    def weight_notices(self) -> WeightNotices:
        """See Backend."""
        return self.engine.weight_notices

    def read(self) -> BoardReading:
        """See Backend."""
        return read_boards(self.engine)

    def board_rows(self, reading: BoardReading | None) -> Iterator[dict[str, object]]:
        """See Backend."""
        return board_rows(self.engine.plan, served_boards(self.engine), reading)

    def is_end(self, error: LoraError) -> bool:
        """A hang is sticky, other failures are not."""
        return self.engine.lost is not None or isinstance(error, HangError)
