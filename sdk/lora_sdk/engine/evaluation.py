"""How well a model predicts a text: bits per byte and perplexity over all its tokens
(docs/numbers.md, 9.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.errors import RequestError, TransportError
from lora_sdk.sampling.logprobs import LN2, log_of_count, log_probability
from lora_sdk.text.windows import Window, windows_of

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine


@dataclass(frozen=True)
class Evaluation:
    """Bits and counts of one text. `first_token`: how the first token was scored. "bos": predicted
    from the tokenizer's BOS token. "uniform" over the vocabulary: the tokenizer has none."""

    bits: float
    bytes: int
    tokens: int
    first_token: str
    context: int
    stride: int
    windows: int

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of the text."""
        return self.bits / self.bytes

    @property
    def perplexity(self) -> float:
        """2 to the power of the bits per token."""
        return float(2.0 ** (self.bits / self.tokens))


@dataclass(frozen=True)
class TextPlan:
    """How a text is scored. `tokens` start with `begin` special tokens (BOS). `windows` are over
    all of them. `bits` are counted in advance, for a first token that nothing predicts."""

    tokens: Sequence[int]
    windows: Sequence[Window]
    begin: int
    bits: float
    bytes: int
    context: int
    stride: int


def plan_text(engine: Engine, data: bytes, stride: int | None = None) -> TextPlan:
    """Windows over all of UTF-8 `data`, each as long as the engine's context. In each but the
    first, `stride` tokens are scored (default: half the context). The BOS token precedes only the
    first window. RequestError for a bad stride, an empty text, or one that is not UTF-8."""
    context = engine.context
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride <= context:
        raise RequestError(f"stride {stride} is out of range; expected 1..{context}")
    text = _text(data)
    begin = engine.tokenizer.begins_with
    tokens = [*begin, *engine.tokenizer.encode(text, special=False)]
    if len(tokens) == len(begin):
        raise RequestError("the text has no tokens; expected at least one")
    bits = 0.0 if begin else log_of_count(engine.config.vocabulary) / LN2
    windows = windows_of(len(tokens), len(begin) or 1, context, stride)
    return TextPlan(tokens, windows, len(begin), bits, len(data), context, stride)


def evaluate_text(
    engine: Engine,
    data: bytes,
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score every byte of UTF-8 `data` on the engine's boards, in the windows of `plan_text`.

    `progress(done, total)` counts tokens. RequestError for a bad stride, an empty text, or one that
    is not UTF-8; TransportError if weights were damaged meanwhile.
    """
    plan = plan_text(engine, data, stride)
    bits = plan.bits
    notices = engine.weight_notices.of_weights
    for window in plan.windows:
        bits -= _score(engine, plan.tokens, window) / LN2
        if progress is not None:
            progress(window.stop - plan.begin, len(plan.tokens) - plan.begin)
    engine.confirm()
    if engine.weight_notices.of_weights != notices:
        cause = next(one for one in reversed(engine.weight_notices.latest) if not one.of_draft)
        raise TransportError(f"{cause}; the score was computed with them: score the text again")
    return Evaluation(
        bits=bits,
        bytes=plan.bytes,
        tokens=len(plan.tokens) - plan.begin,
        first_token="bos" if plan.begin else "uniform",
        context=plan.context,
        stride=plan.stride,
        windows=len(plan.windows),
    )


def _text(data: bytes) -> str:
    if not data:
        raise RequestError("the text is empty; expected at least one byte")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the text is not UTF-8 at byte {error.start}; convert it") from None


def _score(engine: Engine, tokens: Sequence[int], window: Window) -> float:
    """Natural log probability of the window's scored tokens."""
    total = 0.0
    sequence = engine.open_sequence()
    try:
        limit = engine.plan.row_limit
        for start in range(window.start, window.stop - 1, limit):
            stop = min(start + limit, window.stop - 1)
            scored = range(max(start, window.scored - 1), stop)  # row i predicts token i + 1
            rows = engine.rows(
                sequence, tokens[start:stop], logits=[index - start for index in scored]
            )
            result = engine.step(rows)
            engine.commit(sequence, [row.slot for row in rows])
            if result.logits is not None:
                for logits, index in zip(result.logits, scored, strict=True):
                    total += log_probability(logits, tokens[index + 1])
    finally:
        engine.release(sequence)
    return total
