"""A small model with the target's tokens drafts (Leviathan et al., 2023), as a chain or a tree.

It runs on a separate board, emulated unless a device is named, with its own KV cache. A proposal
takes one step per level of the tree. The first step runs the accepted tokens that the draft has not
seen and the pending token. The next steps run each level's candidates that have children. Rows of a
proposal stay in scratch slots until the sequence's next proposal, which commits the accepted ones.
If slots run out, the sequence that proposed longest ago releases its slots: it commits its accepted
tokens and computes the others again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import LoraError, ModelError, RowsLostError
from lora_host.logits import top_tokens
from lora_sdk.kv.kv_limits import kv_limits
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import DEVICE
from lora_sdk.recovery.recovery import Recovery
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.step.step import Row, StepResult
from lora_sdk.step.stepper import Stepper, argmax_of
from lora_sdk.step.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.opening.opening import OpenedModel

"""Default device of a draft model: an emulated board."""


@dataclass(frozen=True)
class DraftBoard:
    """A draft model on its board. `holders`: sequences with rows in scratch slots, ordered from the
    oldest to the latest proposal."""

    opened: OpenedModel
    cache: KvCache
    stepper: Stepper
    recovery: Recovery
    holders: list[ModelDrafting] = field(default_factory=list)

    @property
    def row_limit(self) -> int:
        """Max rows of a step."""
        return self.opened.plan.row_limit

    @property
    def context(self) -> int:
        """Max positions of a sequence."""
        return self.opened.plan.context

    def make_room(self, count: int, keep: ModelDrafting) -> None:
        """Free `count` scratch slots, or as many as sequences other than `keep` hold."""
        if count <= self.cache.free_slots:
            return
        self.stepper.tried(self.stepper.flush)
        short = count - self.cache.free_slots
        for holder in [one for one in self.holders if one is not keep]:
            if short <= 0:
                break
            short -= holder.release_slots()
        self.stepper.tried(self.stepper.flush)

    def run(self, rows: Sequence[Row]) -> StepResult:
        """A step. RowsLostError if the board has lost rows that these follow."""
        try:
            return self.stepper.tried(lambda: self.stepper.run(rows, retry=True))
        except ModelError:
            raise
        except LoraError:
            self.cache.release_slots([row.slot for row in rows])
            raise


def open_board(
    folder: Path,
    context: int,
    sequences: int,
    device: str = DEVICE,
    kernels: str = "native",
    recovery: str = "auto",
) -> DraftBoard:
    """Place the draft model in `folder` for sequences of at most `context` positions, limited by
    the model's own. `recovery`: as in EngineOptions. Errors of every layer pass through."""
    from lora_sdk.model.config import load_config
    from lora_sdk.opening.opening import open_model

    context = min(context, load_config(folder).positions)
    options = EngineOptions(
        folder,
        devices=(device,),
        kernels=kernels,
        context=context,
        max_sequences=sequences,
        threads=1,
        recovery=recovery,
    )
    opened = open_model(options)
    plan = opened.plan
    cache = KvCache(
        *kv_limits(plan),
        first_spilled=plan.first_spilled,
    )
    stepper = Stepper(opened.runner, cache)
    recoverer = Recovery(opened, options, cache, stepper)
    if recovery == "auto":
        stepper.recover = recoverer.recover
    return DraftBoard(opened, cache, stepper, recoverer)


def check_vocabulary(folder: Path, found: int, expected: int) -> None:
    """ModelError unless the draft's vocabulary has as many tokens as the target's."""
    if found != expected:
        raise ModelError(
            f"draft {folder} has a vocabulary of {found} tokens, the model has {expected}; a draft "
            "needs the model's own tokenizer"
        )


class DraftModel:
    """Proposes the most likely tokens of a small model."""

    name = "draft"
    hidden_layers: tuple[int, ...] = ()

    def __init__(self, board: DraftBoard) -> None:
        self._board = board

    @property
    def board(self) -> DraftBoard:
        """Its board."""
        return self._board

    @classmethod
    def open_model(
        cls,
        folder: Path,
        vocabulary: int,
        context: int,
        sequences: int,
        device: str = DEVICE,
        kernels: str = "native",
        recovery: str = "auto",
    ) -> DraftModel:
        """The model in `folder` on a board. `vocabulary` and `context` are the target's.

        ModelError: its vocabulary differs from the target's."""
        from lora_sdk.model.config import load_config

        check_vocabulary(folder, load_config(folder).vocabulary, vocabulary)
        return cls(open_board(folder, context, sequences, device, kernels, recovery))

    def open(self) -> ModelDrafting:
        """Proposals for a new sequence."""
        return ModelDrafting(self._board, self._board.cache.open())

    def close(self) -> None:
        """Release the board."""
        self._board.opened.stack.close()


@dataclass
class _Drafted:
    """Rows of the last proposal, which are in scratch slots."""

    chain: list[int] = field(default_factory=list)  # slots of accepted tokens, in order
    accepted: list[int] = field(default_factory=list)  # these tokens
    tree: TreeShape = field(default_factory=TreeShape)
    tokens: Tokens = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)  # by node of the tree

    def path(self, accepted: Sequence[int]) -> list[int]:
        """Slots of the tree's rows that match the first accepted tokens, in order."""
        path: list[int] = []
        nodes: Sequence[int] = (0,)
        for token in accepted:
            found = [n for n in nodes if n in self.slots and self.tokens[n] == token]
            if not found:
                break
            path.append(self.slots[found[0]])
            nodes = self.tree.children(found[0])
        return path


class ModelDrafting:
    """One sequence of the draft model."""

    def __init__(self, board: DraftBoard, sequence: int) -> None:
        self._board = board
        self._cache = board.cache
        self._sequence = sequence
        self._waiting: list[int] = []  # accepted tokens that no committed row or chain holds
        self._drafted: _Drafted | None = None

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """See Drafting; the rows run with the next proposal."""
        self._waiting.extend(tokens)

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """See Drafting. There are no proposals beyond the draft's own context."""
        proposed: Tokens = [None] * tree.size
        proposed[0] = pending
        self._settle()
        root = self._cache.length(self._sequence) + len(self._waiting)
        if tree.size == 1 or root >= self._board.context:
            return proposed
        result = self._catch_up(pending, tree, proposed)
        self._set_tokens(result, [0], tree, proposed)
        for depth, level in enumerate(tree.levels[1:-1], 1):
            nodes = [n for n in level if proposed[n] is not None and tree.children(n)]
            self._board.make_room(min(len(nodes), self._board.row_limit), self)
            nodes = nodes[: min(self._board.row_limit, self._cache.free_slots)]
            if not nodes or root + depth >= self._board.context:
                break
            self._set_tokens(self._run_level(nodes, root + depth), nodes, tree, proposed)
        return proposed

    def fork(self) -> ModelDrafting:
        """A sequence that shares the committed positions."""
        self._settle()
        other = type(self)(self._board, self._cache.fork(self._sequence))
        other._waiting = list(self._waiting)
        return other

    def close(self) -> None:
        """Free the sequence."""
        self._forget_rows()
        if self._cache.is_open(self._sequence):
            self._cache.close(self._sequence)

    def release_slots(self) -> int:
        """Commit the rows of accepted tokens and drop the others. Returns the number of slots that
        are free once a step has run."""
        count = len(self._cache.uncommitted(self._sequence))
        self._settle()
        return count

    def _settle(self) -> None:
        """Commit the rows whose tokens were accepted, drop the others."""
        if self._drafted is None:
            return
        path = self._drafted.path(self._waiting)
        try:
            self._cache.commit(self._sequence, [*self._drafted.chain, *path])
            del self._waiting[: len(path)]
        except RowsLostError:
            self._cache.drop(self._sequence)
            self._waiting[:0] = self._drafted.accepted
        self._forget_rows()

    def _forget_rows(self) -> None:
        if self._drafted is not None:
            self._drafted = None
            self._board.holders.remove(self)

    def _catch_up(self, pending: int, tree: TreeShape, proposed: Tokens) -> StepResult:
        """Run the waiting tokens and the pending token in as few steps as possible. Returns the
        last step's result, whose last row is the root's."""
        limit = self._board.row_limit
        while len(self._waiting) >= limit:
            rows = self._chain(self._waiting[:limit])
            self._board.run(rows)
            self._cache.commit(self._sequence, [row.slot for row in rows])
            del self._waiting[:limit]
        several = len(tree.children(0)) > 1
        rows = self._chain([*self._waiting, pending], want_logits=several, want_argmax=not several)
        result = self._board.run(rows)
        *chain, root = (row.slot for row in rows)
        self._drafted = _Drafted(chain, self._waiting[:], tree, proposed, {0: root})
        self._board.holders.append(self)
        self._waiting.clear()
        return result

    def _chain(
        self, tokens: Sequence[int], want_logits: bool = False, want_argmax: bool = False
    ) -> list[Row]:
        """A chain of rows after the committed positions. The last one requests results."""
        slots = self._take(len(tokens))
        first = self._cache.length(self._sequence)
        last = len(tokens) - 1
        return [
            Row(
                self._sequence,
                first + i,
                token,
                slots[i],
                slots[i - 1] if i else -1,
                want_logits=want_logits and i == last,
                want_argmax=want_argmax and i == last,
            )
            for i, token in enumerate(tokens)
        ]

    def _run_level(self, nodes: Sequence[int], position: int) -> StepResult:
        """Run the candidates of one level, each after its parent's row."""
        drafted = self._drafted
        assert drafted is not None  # `_catch_up` ran
        tree, slots = drafted.tree, self._take(len(nodes))
        several = any(len(tree.children(node)) > 1 for node in nodes)
        rows = [
            Row(
                self._sequence,
                position,
                drafted.tokens[node] or 0,
                slot,
                drafted.slots[tree.parents[node]],
                want_logits=several,
                want_argmax=not several,
            )
            for node, slot in zip(nodes, slots, strict=True)
        ]
        result = self._board.run(rows)
        drafted.slots.update(zip(nodes, slots, strict=True))
        return result

    def _set_tokens(
        self, result: StepResult, nodes: Sequence[int], tree: TreeShape, proposed: Tokens
    ) -> None:
        """Set the tokens of the children of `nodes`, whose rows are the step's selected rows."""
        for index, node in enumerate(nodes):
            children = tree.children(node)
            if result.logits is None:
                found = [argmax_of(result, result.rows[index])]
            else:
                found = top_tokens(result.logits[index], len(children))
            for child, token in zip(children, found, strict=False):
                proposed[child] = token

    def _take(self, count: int) -> list[int]:
        self._board.make_room(count, self)
        return self._cache.take_slots(count)
