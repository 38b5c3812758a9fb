"""Puts a model on boards, runs steps, and finds the command that wrote the first non-finite value:
later commands only propagate it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import LoraError, ModelError, RequestError
from lora_host.naming import counted
from lora_sdk.compile.isa import Command, encode
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.loading.weights import Loader, Progress, Weights
from lora_sdk.plan.model_plan import BoardPlan, Plan
from lora_sdk.plan.partition import local_columns
from lora_sdk.step.step import Row, StepResult, build_block, selected_rows
from lora_sdk.step.step_shape import StepShape, of_rows

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_sdk.model.quantization import AttentionScales
    from lora_sdk.model.spec import ModelConfig


Lists = Mapping[int, Sequence[Command]]
"""Each board's command list."""


def broken_commands(completions: npt.NDArray[np.void]) -> dict[int, int]:
    """The boards that wrote a non-finite value in a step, by index in the cluster, and the first of
    their commands that did. `completions`: [boards] of abi.dtype("completion")."""
    if not any(completions["nonfinite_count"].tolist()):
        return {}
    return {
        board: int(record["nonfinite_index"])
        for board, record in enumerate(completions)
        if record["nonfinite_count"]
    }


def first_board(lists: Lists, found: Mapping[int, int], plan: Plan | None = None) -> int:
    """The board in `found` (board: index of its command) whose command comes first in the model.

    A board without columns of an operation lacks its commands, so indices of different boards are
    not comparable. Commands are ordered by their max index over all boards; those of a later stage
    of `plan` come later."""
    if plan is not None and len(plan.stages) > 1:
        stages = {one.board: one.share.stage.index for one in plan.boards}
        first = min(stages[board] for board in found)
        lists = {board: lists[board] for board in lists if stages[board] == first}
        found = {board: index for board, index in found.items() if stages[board] == first}
    order: dict[tuple[str, int], int] = {}
    for commands in lists.values():
        for index, key in enumerate(_keys(commands)):
            order[key] = max(order.get(key, 0), index)

    def position(board: int) -> int:
        keys = list(_keys(lists[board]))
        return order[keys[found[board]]] if found[board] < len(keys) else len(keys)

    return min(sorted(found), key=position)


def first_row(lists: Lists, completions: npt.NDArray[np.void], board: int) -> int:
    """The first row for which the first broken command of `board` wrote such a value, on any of the
    boards that have some of its columns."""
    found = broken_commands(completions)
    named = {one: list(_keys(lists[one])) for one in found}
    wanted = named[board][found[board] : found[board] + 1]
    return min(
        int(completions[one]["nonfinite_row"])
        for one in found
        if one == board or (wanted and named[one][found[one] : found[one] + 1] == wanted)
    )


def _keys(commands: Sequence[Command]) -> Iterator[tuple[str, int]]:
    """Each command's name and the number of commands of that name before it."""
    seen: Counter[str] = Counter()
    for command in commands:
        yield str(command), seen[str(command)]
        seen[str(command)] += 1


def nonfinite_error(
    commands: Sequence[Command], index: int, where: str, row: int | None, adapted: bool
) -> ModelError:
    """The error of one of a board's commands, which wrote NaN or infinity for step row `row`.
    `where` ends with the board; `adapted`: the row has an adapter."""
    command = str(commands[index]) if index < len(commands) else f"command {index}"
    remedy = "take a checkpoint made for FP16"
    if adapted:
        remedy = f"lower the adapter's scale, use none, or {remedy}"
    return ModelError(
        f"{command} wrote NaN or infinity, {where}; expected finite numbers; the model overflows "
        f"FP16 here, {remedy}",
        row=row,
    )


__all__ = ["KvOp", "Row", "Runner", "StepResult"]

LIST_ID = 0


class Runner:
    """A model on the boards of an open cluster.

    The constructor brings up the plan's links, reserves the arenas, loads and checks the weights,
    and registers every board's command list."""

    def __init__(
        self,
        cluster: Cluster,
        config: ModelConfig,
        checkpoint: Weights,
        plan: Plan,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        """`progress(done, total)` receives bytes. `threads` pack weights (None: one per core)."""
        _check_boards(cluster, plan)
        self.cluster = cluster
        self.config = config
        self.plan = plan
        self._control_bank = plan.overlay.control_bank
        self._block_offset = plan.boards[0].control.block_offset
        for board in plan.boards:
            for bank, size in sorted(board.arenas.items()):
                cluster.reserve(board.board, bank, size)
        if plan.size > 1:
            cluster.links_up(plan.route.cables)
        quantized = config.quantization is not None
        self._scales = checkpoint.activation_scales() if quantized else None
        self._loader = Loader(cluster, plan, checkpoint, progress, threads)
        self._loader.load()
        self._loader.check()
        self.commands: dict[int, list[Command]] = {}
        self.on_step: Callable[[StepShape], None] | None = None  # called with every completed step
        self.spilled: Callable[[int], int] | None = None  # of a sequence, for `on_step` (of_rows)
        self.restored = 0  # times that the boards were set up again
        for board in plan.boards:
            self._register(board)

    @property
    def attention_scales(self) -> tuple[AttentionScales, ...]:
        """Static scales of q, k and v by layer, empty without INT8 attention."""
        return () if self._scales is None else tuple(self._scales.attention)

    @property
    def weights(self) -> Loader:
        """What the boards were loaded with."""
        return self._loader

    def restore(self, repaired: Counter[int]) -> None:
        """Set boards up again that were reset, arenas included: links, weights where their sums
        differ, command lists. Adds the bytes of weights that differed to `repaired`, by board.
        LoraError."""
        if self.plan.size > 1:
            self.cluster.links_up(self.plan.route.cables)
        self._loader.repair(repaired)
        self.restored += 1
        for board in self.plan.boards:
            self._register(board)

    def _register(self, board: BoardPlan) -> None:
        if board.board not in self.commands:
            self.commands[board.board] = lower(self.config, self.plan, board.rank, self._scales)
        self.register(board, self.commands[board.board])

    def register(self, board: BoardPlan, commands: Sequence[Command]) -> None:
        """Let the next steps of a board run these commands in place of its list. LoraError."""
        data = encode(commands, self.plan, board.rank, LIST_ID)
        offset = board.control.list_offset
        self.cluster.write(board.board, self._control_bank, offset, data)
        self.cluster.register_list(board.board, LIST_ID, offset)

    @property
    def ring(self) -> tuple[int, int]:
        """The board of rank 0, and the byte offset of its ring of tokens in the control bank."""
        first = self.plan.boards[0]
        return first.board, first.control.ring_offset

    def check_weights(self) -> None:
        """Compares the weights on the boards with those loaded. TransportError if they differ."""
        self._loader.check()

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult:
        """Runs one step on all boards and reads the results that its rows request.

        RequestError: more rows or operations than a step takes. CommandError: the firmware refuses
        a row. ModelError: a unit wrote a non-finite value. The boards have then completed the step,
        commits included."""
        self._check_counts(rows, kv_ops, path)
        columns = self.config.embed_dim
        block = build_block(rows, kv_ops, path, LIST_ID, columns)
        completions = self.cluster.step(block, self._block_offset)
        self._check_finite(rows, completions)
        if self.on_step is not None:
            shapes = ((row.sequence, row.position, row.adapter) for row in rows)
            self.on_step(of_rows(shapes, selected_rows(rows), len(path), self.spilled))
        try:
            return self._result(rows, completions)
        except LoraError:  # a transfer has failed: the boards would take commits twice
            self.cluster.repeat()
            raise

    def _result(self, rows: Sequence[Row], completions: npt.NDArray[np.void]) -> StepResult:
        """What the rows request of the step that the boards have completed."""
        chosen: list[int] = []
        hidden: list[int] = []
        logits = argmax = final = False
        for index, row in enumerate(rows):
            if row.selected:
                chosen.append(index)
            if row.want_hidden:
                hidden.append(index)
            logits, argmax = logits or row.want_logits, argmax or row.want_argmax
            final = final or row.want_final
        return StepResult(
            step=int(completions[0]["step"]),
            rows=tuple(chosen),
            logits=self._logits(len(chosen)) if logits else None,
            argmax=self._argmax(len(chosen)) if argmax else None,
            hidden=self._hidden(hidden) if hidden else None,
            hidden_rows=tuple(hidden),
            completions=completions,
            final=self._final(len(chosen)) if final else None,
        )

    def _check_counts(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp], path: Sequence[int]
    ) -> None:
        max_path = abi.MAX_ROWS * abi.MAX_SEQUENCES
        for what, count, limit in (
            ("rows", len(rows), self.plan.row_limit),
            ("KV operations", len(kv_ops), abi.MAX_KV_OPS),
            ("path entries", len(path), max_path),
        ):
            if count > limit:
                raise RequestError(f"a step with {count} {what}; expected at most {limit}")
        taps, final = bool(self.plan.hidden_taps), self.plan.final_states
        for row in rows:
            if row.want_hidden and not taps:
                raise RequestError("a row requests hidden states, but the plan has no hidden taps")
            if row.want_final and not final:
                raise RequestError("a row requests final states, but the plan returns none")

    def _check_finite(self, rows: Sequence[Row], completions: npt.NDArray[np.void]) -> None:
        """ModelError naming the first command of any board that wrote NaN or infinity."""
        broken = broken_commands(completions)
        if not broken:
            return
        board = first_board(self.commands, broken, self.plan)
        index = first_row(self.commands, completions, board)
        row = rows[index] if index < len(rows) else None
        where = f"first in row {index}"
        if row is not None:
            where += f" (sequence {row.sequence}, position {row.position})"
        where += f" on board {board}"
        adapted = row is not None and row.adapter >= 0
        found = None if row is None else index
        raise nonfinite_error(self.commands[board], broken[board], where, found, adapted)

    def _read(self, board: BoardPlan, offset: int, shape: tuple[int, ...], kind: Any) -> Any:
        """An array of results from a board's control bank."""
        array = np.empty(shape, kind)
        if array.size:
            self.cluster.read_into(board.board, self._control_bank, offset, array)
        return array

    def _logits(self, count: int) -> npt.NDArray[np.float32]:
        """FP32 [count, vocabulary]: the boards' shares concatenated, without their padding."""
        parts, shares = self._logit_shares
        found = self.cluster.read_each(
            self._control_bank, [(offset, size * count) for offset, size in parts]
        ).view(np.float32)
        logits = np.empty((count, self.config.vocabulary), np.float32)
        start = 0
        for stride, columns in shares:
            end = start + stride * count
            padded = found[start:end].reshape(count, stride)
            logits[:, columns] = padded[:, : columns.stop - columns.start]
            start = end
        return logits

    @cached_property
    def _logit_shares(self) -> tuple[list[tuple[int, int]], list[tuple[int, slice]]]:
        """Of each board, in the cluster's order: the offset of its logits in the control bank and
        the bytes of a row; the numbers of a row, padding included, and which columns they are."""
        boards = sorted(self.plan.boards, key=lambda one: one.board)
        shares = [(one.control, one.share.vocabulary) for one in boards]
        return (
            [(control.logits_offset, control.logits_stride) for control, _ in shares],
            [(control.logits_stride // 4, slice(v.start, v.stop)) for control, v in shares],
        )

    def _argmax(self, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        """The max logit of each row and its token; NaN if a board found one. Among equal logits the
        lowest token wins: ranks hold ascending tokens."""
        boards = [board for board in self.plan.boards if board.share.vocabulary]
        records = np.empty((len(boards), count), abi.dtype("argmax"))
        for board, record in zip(boards, records, strict=True):
            record[:] = self.cluster.argmax(board.board, count)
        if len(boards) == 1:
            return records["value"][0], records["token"][0]
        best = np.argmax(records["value"], axis=0)  # the first max, or the first NaN
        rows = np.arange(count)
        return records["value"][best, rows], records["token"][best, rows]

    def _hidden(self, rows: Sequence[int]) -> npt.NDArray[np.float16]:
        """FP16 [taps, len(rows), hidden] of these rows of the step."""
        taps = range(len(self.plan.hidden_taps))
        return np.stack([self._tap(index, rows) for index in taps])

    def _tap(self, index: int, rows: Sequence[int]) -> npt.NDArray[np.float16]:
        """FP16 [len(rows), hidden] of one tap, from the boards that run its layer."""
        layer, layers = self.plan.hidden_taps[index], self.config.layers
        parts = []
        for board in self.plan.boards:
            if not board.share.stage.holds_tap(layer, layers):
                continue
            control = board.control
            offset = control.hidden_offset + index * control.hidden_tap_bytes
            shape = (max(rows) + 1, control.hidden_stride // 2)
            whole = self._read(board, offset, shape, np.float16)
            parts.append(whole[list(rows), : len(board.share.hidden)])
        return np.concatenate(parts, axis=1)

    def _final(self, count: int) -> npt.NDArray[np.float16]:
        """FP16 [count, embed_dim]: lm_head's input, from the boards of the last stage."""
        parts = []
        for board in self.plan.boards:
            if board.share.stage.is_last:
                source = board.share.block(self.config).head_input
                columns = len(local_columns(self.config, board.share, source))
                control = board.control
                shape = (count, control.final_stride // 2)
                whole = self._read(board, control.final_offset, shape, np.float16)
                parts.append(whole[:, :columns])
        return np.concatenate(parts, axis=1)


def _check_boards(cluster: Cluster, plan: Plan) -> None:
    """RequestError unless the plan's boards are the cluster's."""
    if cluster.size != plan.size:
        raise RequestError(
            f"the plan is for {counted(plan.size, 'board')}, the cluster has {cluster.size}; "
            "open as many as the plan needs"
        )
    outside = [board for board in plan.route.order if not 0 <= board < cluster.size]
    if outside:
        raise RequestError(
            f"the plan's route uses board {outside[0]}, the cluster has boards 0 to "
            f"{cluster.size - 1}; find the route in the opened cluster's cables"
        )
