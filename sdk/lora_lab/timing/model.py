"""`model_time`: latency and rate of a target, plain or with tree speculation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_lab.timing.report import Report, Totals, utilisation
from lora_lab.timing.target import Target, notes_of

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

MAX_CONTEXT = 1 << 20
MAX_LENGTH = 64  # max verification length in the search
EXACT_STEPS = 256  # output lengths up to this are summed step by step
SPECULATED_STEPS = 16  # each takes a search over lengths


@dataclass(frozen=True)
class Speculation:
    """One draft-and-verify round at a context, with the time per token."""

    length: int
    aat: float
    totals: Totals
    verify_s: float
    draft_s: float
    plain_s: float

    @property
    def per_token(self) -> float:
        """Seconds per token."""
        return (self.verify_s + self.draft_s) / self.aat


def speculate(target: Target, context: int, length: int | None = None) -> Speculation:
    """The round with `length` rows, or with the best number of rows (equation 7 of the
    tree-speculation paper; 1 is plain decoding). RequestError: the design has no draft model."""
    if target.draft is None:
        raise RequestError(
            f"design {target.name} has no draft model; use --mode ar, or a design with one"
        )
    plain = target.decode(context)
    if length is not None:
        return _round(target, context, length, plain)
    found = [_round(target, context, rows, plain) for rows in range(1, MAX_LENGTH + 1)]
    return min(found, key=lambda entry: entry.per_token)


def _round(target: Target, context: int, length: int, plain: Totals) -> Speculation:
    assert target.draft is not None  # checked by speculate
    verified = plain if length == 1 else target.verify(length, context)
    aat = target.draft.aat(length, context)
    drafting = target.draft.draft_share(length) * plain.seconds
    share = Totals()
    share.add(verified, 1 / aat)
    share.add(Totals(drafting, {"draft": drafting}), 1 / aat)
    return Speculation(length, aat, share, verified.seconds, drafting, plain.seconds)


def token_time(
    target: Target, model: str, context: int, mode: str = "ar", length: int | None = None
) -> Report:
    """One steady-state token at `context` positions. RequestError: argument out of range."""
    _check("context", context, MAX_CONTEXT)
    if mode == "ar":
        details: dict[str, object] = {"context": context}
        return _report(target, model, mode, target.decode(context), 1, details, context)
    found = speculate(target, context, length)
    details = {
        "context": context,
        "verification_length": found.length,
        "aat": found.aat,
        "aat_basis": target.draft.basis(found.length) if target.draft else "",
        "verify_ms": found.verify_s * 1e3,
        "draft_ms": found.draft_s * 1e3,
        "plain_ms": found.plain_s * 1e3,
        "speedup": found.plain_s / found.per_token,
        "draft_model": target.draft.title if target.draft else "",
    }
    return _report(target, model, mode, found.totals, 1, details, context)


def run_time(
    target: Target, model: str, inputs: int, outputs: int, mode: str = "ar",
    length: int | None = None,
) -> Report:  # fmt: skip
    """A whole request: prefill of `inputs` tokens, then `outputs` decode steps (table IV)."""
    _check("input length", inputs, MAX_CONTEXT)
    _check("output length", outputs, MAX_CONTEXT)
    first = target.prefill(inputs)
    if mode == "ar":
        decoding = decode_time(target, inputs + 1, outputs)
    else:

        def one(context: int) -> Totals:
            return speculate(target, context, length).totals

        decoding = _sum(one, inputs + 1, outputs, SPECULATED_STEPS)
    totals = Totals()
    totals.add(first)
    totals.add(decoding)
    details: dict[str, object] = {
        "input": inputs,
        "output": outputs,
        "prefill_ms": first.seconds * 1e3,
        "decode_ms_per_token": decoding.seconds / outputs * 1e3,
    }
    return _report(target, model, mode, totals, outputs, details, inputs + outputs)


def decode_time(target: Target, first: int, count: int) -> Totals:
    """`count` new tokens, the first one at `first` positions."""
    return _sum(target.decode, first, count, EXACT_STEPS)


def check_positions(config: ModelConfig, positions: int) -> None:
    """RequestError: the model has no token at so many positions."""
    if positions > config.positions:
        raise RequestError(
            f"{positions} positions, {positions - config.positions} more than the model's "
            f"{config.positions}"
        )


def _sum(one: Callable[[int], Totals], start: int, count: int, points: int) -> Totals:
    """Sum over `count` contexts from `start`. Above `points` contexts it uses the trapezoid rule
    with that many points, since time is piecewise linear in the context."""
    totals = Totals()
    if count <= points:
        for context in range(start, start + count):
            totals.add(one(context))
        return totals
    contexts = [start + (count - 1) * i // (points - 1) for i in range(points)]
    weights = [0.0] * points
    for index, (left, right) in enumerate(pairwise(contexts)):
        # left..right-1 on a straight line sum to (gap+1)/2 of its start and (gap-1)/2 of its end
        gap = right - left
        weights[index] += (gap + 1) / 2
        weights[index + 1] += (gap - 1) / 2
    weights[-1] += 1
    for context, weight in zip(contexts, weights, strict=True):
        totals.add(one(context), weight)
    return totals


def _check(what: str, value: int, high: int) -> None:
    if not 1 <= value <= high:
        raise RequestError(f"{what} {value} is out of range: 1 to {high}")


def _report(
    target: Target, model: str, mode: str, totals: Totals, tokens: int,
    details: dict[str, object], context: int,
) -> Report:  # fmt: skip
    """`context`: the last one."""
    return Report(
        label="modelled",
        design=target.name,
        board=target.board,
        model=model,
        boards=target.boards,
        mode=mode,
        latency_ms=totals.seconds * 1e3,
        tokens_per_second=tokens / totals.seconds,
        breakdown_ms={name: value * 1e3 for name, value in totals.by.items()},
        bytes={name: round(value) for name, value in totals.bytes.items()},
        utilisation=utilisation(totals, target.roofs),
        details=details,
        notes=notes_of([(target, context)]),
    )
