"""Greedy tokens of one sequence on the boards of an opened model: chosen by the boards, or by the C
host after every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import ModelError
from lora_host.records import GenerateResult
from lora_sdk.engine.greedy import OnToken
from lora_sdk.step.runner import broken_commands, first_board, nonfinite_error
from lora_sdk.step.step_shape import StepShape

if TYPE_CHECKING:
    from lora_sdk.opening.opening import OpenedModel


class BoardLoop:
    """A Loop of lora_sdk.engine.greedy. `by_host`: the host chooses every token."""

    def __init__(self, opened: OpenedModel, by_host: bool = False) -> None:
        self.rows = 0
        self._opened = opened
        self._by_host = by_host

    def greedy(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int, int],
        max_tokens: int,
        on_token: OnToken,
        adapter: int,
        stop_tokens: Sequence[int] = (),
    ) -> None:
        """See Loop. ModelError names the command whose value is not finite."""
        runner = self._opened.runner
        before, on_step = len(run), runner.on_step
        self.rows = 0

        def received(emitted: int) -> bool:
            run.append(emitted)
            if on_step is not None:
                done = len(run) - before
                seen, spilled = position + done, runner.spilled
                there = None if spilled is None else spilled(sequence)
                on_step(StepShape(1, seen, seen, 1, int(done > 1), spilled=there))
            return on_token(emitted)

        def ended(result: GenerateResult) -> None:
            self.rows = result.rows
            del run[before + result.rows :]  # its step is to be run again

        stops = tuple(stop_tokens)[: abi.MAX_STOP_TOKENS]
        try:
            if self._by_host:
                self._step_by_step(
                    sequence, position, run, slots, max_tokens, received, adapter, stops
                )
            else:
                self._opened.cluster.generate(
                    sequence,
                    position,
                    run[-1],
                    slots,
                    max_tokens,
                    runner.plan.boards[0].control.block_offset,
                    runner.ring,
                    stop_tokens=stops,
                    on_token=received,
                    adapter=adapter,
                    ended=ended,
                )
        except ModelError as error:
            at = error.failure
            if at is None or at.board is None or at.index is None:
                raise
            context = position + len(run) - before
            completions = self._opened.cluster.completions()
            broken = broken_commands(completions)
            board = first_board(runner.commands, broken, runner.plan)
            row = int(completions[board]["nonfinite_row"])
            where = f"in the row of sequence {sequence}, position {context} on board {board}"
            commands, index = runner.commands[board], broken[board]
            raise nonfinite_error(commands, index, where, row, adapter >= 0) from error

    def _step_by_step(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int, int],
        max_tokens: int,
        received: OnToken,
        adapter: int,
        stop_tokens: Sequence[int],
    ) -> None:
        """One step a token. A step that failed gave none."""
        runner, before = self._opened.runner, len(run)
        try:
            self._opened.cluster.greedy(
                sequence,
                position,
                run[-1],
                slots,
                max_tokens,
                runner.plan.boards[0].control.block_offset,
                stop_tokens=stop_tokens,
                on_token=received,
                adapter=adapter,
            )
        except ModelError:  # the boards have completed the step
            self.rows = 1
            raise
        finally:
            self.rows += len(run) - before
