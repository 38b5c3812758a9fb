"""What a server and its replicas tell each other. Ray carries the objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_host import errors
from lora_host.errors import FailureFields, LoraError

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.weight_notices import WeightNotice
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.sampling.logprobs import PositionLogprobs
    from lora_sdk.serve.served_board import ServedBoard
    from lora_sdk.step.speculation_statistics import SpeculationStatistics


@dataclass(frozen=True)
class Work:
    """A request for a replica. `emitted`: by sample, the tokens that clients have already; the
    replica computes prompt and tokens again and goes on behind them. `grammar`: what
    `params.allowed_tokens` was made of, which does not travel itself."""

    number: int
    tokens: tuple[int, ...]
    params: SamplingParams
    seed: int
    emitted: tuple[tuple[int, ...], ...]
    grammar: str | None
    streams: bool


@dataclass(frozen=True)
class Token:
    """A new token. `sample`: its index; `place`: its number among the sample's tokens, from 1."""

    sample: int
    place: int
    token: int
    logprobs: PositionLogprobs | None


@dataclass(frozen=True)
class Failure:
    """An error, by the name of its class. `lost`: the replica's boards are beyond recovery."""

    kind: str
    message: str
    failure: FailureFields | None
    usage: bool
    lost: bool


@dataclass(frozen=True)
class Facts:
    """Of a request, sent with its first token and with its end. Seconds on the replica's clock:
    `queued` until its first step, `first` from then to its first token. `scores`: of a beam
    search's hypotheses; their tokens come with them."""

    cached_tokens: int
    queued: float
    first: float
    prefill: str | None
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    speculation: SpeculationStatistics | None = None
    scores: tuple[float, ...] | None = None


@dataclass(frozen=True)
class News:
    """Of one request since the last batch. `ended`: nothing more comes of it."""

    number: int
    tokens: tuple[Token, ...]
    facts: Facts | None
    ended: bool
    failure: Failure | None


@dataclass(frozen=True)
class Batch:
    """What a replica tells at once. `notices`: of damaged weights, new ones; `new_tokens`: of all
    requests so far."""

    news: tuple[News, ...]
    notices: tuple[WeightNotice, ...]
    new_tokens: int


@dataclass(frozen=True)
class Opened:
    """What a replica says of its engine once it is open. `node`: Ray's id of the computer."""

    model_path: Path
    config: ModelConfig
    plan: Plan
    movable: bool
    fast: bool
    adapter_slots: int
    requests: int
    boards: tuple[ServedBoard, ...]
    node: str
    pid: int


@dataclass(frozen=True)
class DaemonState:
    """A board daemon below its actor. `node`: Ray's id; `pid`: of the daemon, None while it does
    not run; `boards`: names of those that it serves, () until it does; `restarts` by the actor's
    process, and the `cause` of the last end, "" without one."""

    address: str
    node: str
    pid: int | None
    boards: tuple[str, ...]
    restarts: int
    cause: str


def told(error: BaseException, lost: bool = False) -> Failure:
    """An error for the other side."""
    if isinstance(error, LoraError):
        return Failure(type(error).__name__, str(error), error.failure, error.usage, lost)
    return Failure("LoraError", f"{type(error).__name__}: {error}", None, False, lost)


def raised(failure: Failure, where: str = "") -> LoraError:
    """The error that was told, `where` before its message."""
    kind: Any = getattr(errors, failure.kind, LoraError)
    if not (isinstance(kind, type) and issubclass(kind, LoraError)):
        kind = LoraError
    error: LoraError = kind(f"{where}{failure.message}", failure=failure.failure)
    if error.usage != failure.usage:
        error.usage = failure.usage
    return error
