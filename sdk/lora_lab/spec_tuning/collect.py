"""The target's own text, and a draft's ranks along it.

Speculative decoding generates the target's text. So acceptance is measured on the target's
continuations of prompts, which are cut from a user's text. Half of them are for the search, half
are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import MISSED, TextRanks, of_single_ranks
from lora_sdk.sampling import SamplingParams
from lora_sdk.spec.proposer import Drafting, Hidden, Proposer
from lora_sdk.step.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.step.results import Result

PROMPT_SHARES = (0.03, 0.1, 0.2, 0.35, 0.55, 0.85)
"""Lengths of the prompts as shares of the context, so that AAT is measured over all of it."""

SPACING = 96
"""Tokens between the ends of two prompts in the text."""

NEW_TOKENS = 128
"""Tokens that the target generates after each prompt."""

MIN_PROMPTS = 12
"""Min number of prompts of each half."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class OwnText:
    """Token ids: the first `prompt` ones are the prompt, the others the target's own."""

    ids: tuple[int, ...]
    prompt: int


@dataclass(frozen=True)
class Prompts:
    """Prompts for the search and held-out prompts, from different chunks of a text."""

    search: tuple[tuple[int, ...], ...]
    held_out: tuple[tuple[int, ...], ...]


def cut_prompts(
    tokens: Sequence[int], context: int, max_prompts: int, begin: Sequence[int]
) -> Prompts:
    """At most `max_prompts` prompts of each half from a text's tokens.

    The text is cut into chunks as long as the longest prompt, alternating between the halves.
    Prompts end every SPACING tokens of a chunk. Their lengths cycle through PROMPT_SHARES of the
    context. Each starts with `begin` (BOS). RequestError: the text gives fewer than MIN_PROMPTS of
    each half, or the context is too short."""
    room = context - NEW_TOKENS - len(begin)
    if room < SPACING:
        raise RequestError(
            f"a context of {context} positions; expected at least "
            f"{NEW_TOKENS + SPACING + len(begin)}: raise --ctx-size"
        )
    chunk = int(room * PROMPT_SHARES[-1])
    halves: list[list[tuple[int, ...]]] = [[], []]
    for number, start in enumerate(range(0, len(tokens), chunk)):
        half = halves[number % 2]
        for end in range(start + SPACING, min(start + chunk, len(tokens)) + 1, SPACING):
            length = max(1, int(room * PROMPT_SHARES[len(half) % len(PROMPT_SHARES)]))
            half.append((*begin, *tokens[max(start, end - length) : end]))
    fewest = min(map(len, halves))
    if fewest < MIN_PROMPTS:
        raise RequestError(
            f"the text has {len(tokens)} tokens, which gives {fewest} prompts of each half; "
            f"expected {MIN_PROMPTS}: give more text"
        )
    count = min(max_prompts, fewest)
    return Prompts(_spread(halves[0], count), _spread(halves[1], count))


def _spread(prompts: Sequence[tuple[int, ...]], count: int) -> tuple[tuple[int, ...], ...]:
    """`count` of the prompts, evenly spaced over the text."""
    return tuple(prompts[index * len(prompts) // count] for index in range(count))


def continue_prompts(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    temperature: float = 0.0,
    progress: Progress | None = None,
) -> list[OwnText]:
    """The target's NEW_TOKENS tokens after each prompt. `progress(done, total)` counts prompts.

    Greedy, or sampled with the prompt's number as seed. Generation continues after end-of-text, as
    it would with a user's next prompt."""
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, temperature=temperature, seed=0)
    done = 0

    def received(_index: int, _result: Result) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(prompts))

    each = [replace(params, seed=number) for number in range(len(prompts))]
    results = engine.generate([list(prompt) for prompt in prompts], each, on_result=received)
    assert isinstance(results, list)  # several prompts
    return [OwnText((*r.prompt_token_ids, *r.token_ids), r.prompt_tokens) for r in results]


def model_ranks(
    draft: Engine, texts: Sequence[OwnText], depth: int, progress: Progress | None = None
) -> list[TextRanks]:
    """Ranks of the target's tokens with a draft model. Its input is tokens only, so one run over a
    text gives its logits after every token. `progress(done, total)` counts texts."""
    found = []
    for number, text in enumerate(texts):
        ranks = _ranks_of(draft, text)
        found.append(of_single_ranks(text.prompt + 1, ranks, depth))
        if progress is not None:
            progress(number + 1, len(texts))
    return found


def proposer_ranks(
    proposer: Proposer,
    texts: Sequence[OwnText],
    maximal: TreeShape,
    target: Engine | None = None,
    progress: Progress | None = None,
) -> list[TextRanks]:
    """Ranks and proposals of any draft, which proposes the maximal tree at every root.

    `target` runs the texts once if the proposer needs hidden states (its `hidden_layers`, which
    must be among the engine's). `progress(done, total)` counts texts."""
    found = []
    for number, text in enumerate(texts):
        hidden = None
        if proposer.hidden_layers:
            if target is None:
                raise RequestError(f"draft {proposer.name} reads hidden states; give the target")
            hidden = hidden_states(target, text.ids, proposer.hidden_layers)
        drafting = proposer.open()
        try:
            found.append(_propose_along(drafting, text, maximal, hidden))
        finally:
            drafting.close()
        if progress is not None:
            progress(number + 1, len(texts))
    return found


def hidden_states(engine: Engine, ids: Sequence[int], layers: Sequence[int]) -> Hidden:
    """Inputs of `layers` at every token: FP16 [layers, tokens, d]. RequestError: a layer for which
    the engine was not opened."""
    taps = list(engine.plan.hidden_taps)
    for layer in layers:
        if layer not in taps:
            raise RequestError(f"hidden states of layer {layer}; the engine was opened for {taps}")
    chosen = [taps.index(layer) for layer in layers]
    sequence = engine.open_sequence()
    chunks = []
    try:
        for start in range(0, len(ids), engine.plan.row_limit):
            chunk = ids[start : start + engine.plan.row_limit]
            rows = engine.rows(sequence, chunk, logits=False, hidden=range(len(chunk)))
            result = engine.step(rows)
            engine.commit(sequence, [row.slot for row in rows])
            assert result.hidden is not None  # requested for every row
            chunks.append(result.hidden[chosen])
    finally:
        engine.release(sequence)
    return np.concatenate(chunks, axis=1)


def _propose_along(
    drafting: Drafting, text: OwnText, maximal: TreeShape, hidden: Hidden | None
) -> TextRanks:
    """A proposal at every root with at least as many tokens after it as the tree is deep."""
    ids, first = text.ids, text.prompt
    count = len(ids) - first - maximal.depth
    ranks = np.full((count, maximal.depth), MISSED, dtype=np.uint8)
    proposed = np.zeros((count, maximal.size), dtype=bool)
    drafting.accept(ids[:first], None if hidden is None else hidden[:, :first])
    for index in range(count):
        root = first + index
        tokens = drafting.propose(ids[root], maximal)
        proposed[index] = [token is not None for token in tokens]
        node = 0
        for step in range(maximal.depth):
            correct = ids[root + step + 1]
            child = next((c for c in maximal.children(node) if tokens[c] == correct), None)
            if child is None:
                break
            ranks[index, step] = maximal.ranks[child]
            node = child
        drafting.accept(
            ids[root : root + 1], None if hidden is None else hidden[:, root : root + 1]
        )
    return TextRanks(first + 1, ranks, proposed)


def _ranks_of(draft: Engine, text: OwnText) -> list[int]:
    """Rank of each of the target's tokens except the first, by the draft's logits. Ties: the lower
    id comes first."""
    ids, first = text.ids, text.prompt
    sequence = draft.open_sequence()
    found: list[int] = []
    try:
        for start in range(0, len(ids) - 1, draft.plan.row_limit):
            stop = min(start + draft.plan.row_limit, len(ids) - 1)
            ranked = range(max(start, first), stop)  # the row of token i ranks token i + 1
            rows = draft.rows(sequence, ids[start:stop], logits=[index - start for index in ranked])
            result = draft.step(rows)
            draft.commit(sequence, [row.slot for row in rows])
            if result.logits is None:
                continue
            for logits, index in zip(result.logits, ranked, strict=True):
                token = ids[index + 1]
                above = int(np.count_nonzero(logits > logits[token]))
                equal = int(np.count_nonzero(logits[:token] == logits[token]))
                found.append(min(above + equal, MISSED))
    finally:
        draft.release(sequence)
    return found
