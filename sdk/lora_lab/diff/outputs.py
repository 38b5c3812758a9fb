"""Steps of one sequence on a placed model, and what any operation of the last step has written.

An operation's values are read behind a command list that ends with it: the list is registered in
place of the whole one, the step's rows run again, and a move copies the buffer into the results.
Rows that run again write the same K and V."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host.errors import RequestError
from lora_sdk.compile.lower import lower_until
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.kv.kv_limits import kv_limits
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.model.operations import Buffer, target, width
from lora_sdk.opening.opening import OpenedModel
from lora_sdk.plan.model_plan import BoardPlan
from lora_sdk.plan.partition import axis_columns, local_columns
from lora_sdk.plan.tensors import FP16_BYTES
from lora_sdk.step.step import Row, build_rows
from lora_sdk.step.stepper import Stepper

Values = npt.NDArray[Any]


class Outputs:
    """One sequence of a placed model. RequestError: its layers are cut into pipeline stages, or a
    board has no part of the vocabulary."""

    def __init__(self, opened: OpenedModel) -> None:
        plan = opened.plan
        if len(plan.stages) > 1:
            raise RequestError(
                f"{len(plan.stages)} pipeline stages: their operations cannot be read one by one; "
                "expected 1 stage"
            )
        bare = [b.board for b in plan.boards if not b.control.logits_stride]
        if bare:
            raise RequestError(
                f"board {bare[0]} has no column of the vocabulary, so no room for values; "
                "name fewer boards"
            )
        self.config, self._plan = opened.config, plan
        self._cluster, self._runner = opened.cluster, opened.runner
        quantized = opened.config.quantization is not None
        self._scales = opened.checkpoint.activation_scales() if quantized else None
        self.operations = tuple(plan.boards[0].share.block(opened.config).operations)
        self._cache = KvCache(*kv_limits(plan))
        self._stepper = Stepper(opened.runner, self._cache)
        self._cache.reset()
        self._stepper.flush()
        self._sequence = self._cache.open()
        self._rows: list[Row] = []

    @property
    def row_limit(self) -> int:
        """Rows that one step takes."""
        return self._plan.row_limit

    @property
    def context(self) -> int:
        """Positions that the sequence may have."""
        return self._plan.context

    def step(self, tokens: Sequence[int]) -> Values:
        """The next tokens in one step: FP32 logits [tokens, vocabulary]."""
        self._cache.commit(self._sequence, [row.slot for row in self._rows])
        self._rows = build_rows(self._cache, self._sequence, tokens, logits=range(len(tokens)))
        found = self._stepper.run(self._rows).logits
        assert found is not None
        return found

    def written(self, count: int) -> Values | None:
        """What the last of the first `count` operations writes in the last step: [rows, columns],
        FP16 or FP32; None for one that changes no buffer of activations (K and V, argmax)."""
        buffer = target(self.operations[count - 1])
        if buffer is None:
            return None
        if buffer.results:
            return self._run(count, buffer, range(0))[0]
        parts, room = [], self._room
        for start in range(0, self._widest(buffer), room):
            parts.append(self._run(count, buffer, range(start, start + room))[1])
        shares = [np.concatenate(own, axis=1) for own in zip(*parts, strict=True)]
        return self._joined(buffer, shares)

    @property
    def _room(self) -> int:
        """FP16 values of a row that the results take."""
        return min(board.control.logits_stride for board in self._plan.boards) // FP16_BYTES

    def _widest(self, buffer: Buffer) -> int:
        shares = [board.share for board in self._plan.boards]
        return max(len(local_columns(self.config, share, buffer)) for share in shares)

    def _ranges(self, buffer: Buffer, rank: int) -> list[range]:
        """The board's columns of each axis."""
        share = self._plan.boards[rank].share
        return [axis_columns(self.config, share, axis) for axis in buffer.axes]

    def _joined(self, buffer: Buffer, shares: list[Values]) -> Values:
        """Boards' own columns, axis by axis, as one row."""
        widths = [width(self.config, axis) for axis in buffer.axes]
        whole = np.zeros((len(self._rows), sum(widths)), shares[0].dtype)
        for rank, share in enumerate(shares):
            at = start = 0
            for wide, own in zip(widths, self._ranges(buffer, rank), strict=True):
                place = slice(start + own.start, start + own.stop)
                whole[:, place] = share[:, at : at + len(own)]
                at, start = at + len(own), start + wide
        return whole

    def _run(self, count: int, buffer: Buffer, part: range) -> tuple[Values, list[Values]]:
        """The last step up to an operation that writes `buffer`: logits, and of each board those of
        its own columns that lie in `part`."""
        for board in self._plan.boards:
            commands = lower_until(self.config, self._plan, board.rank, self._scales, count, part)
            self._runner.register(board, commands)
        length = self._cache.length(self._sequence)
        again = KvOp.commit(self._sequence, length, 0, 0)  # nothing; the rows' first run is dropped
        logits = self._runner.step(self._rows, [again]).logits
        assert logits is not None
        return logits, [self._moved(board, buffer, part) for board in self._plan.boards]

    def _moved(self, board: BoardPlan, buffer: Buffer, part: range) -> Values:
        """FP16 [rows, columns in `part`] of a board."""
        own = len(local_columns(self.config, board.share, buffer))
        rows = np.empty((len(self._rows), board.control.logits_stride // FP16_BYTES), np.float16)
        self._cluster.read_into(
            board.board, self._plan.overlay.control_bank, board.control.logits_offset, rows
        )
        return rows[:, : max(0, min(own, part.stop) - part.start)]
