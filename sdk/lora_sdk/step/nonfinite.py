"""Finds the command that wrote the first non-finite value. Later commands only propagate it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lora_host.errors import ModelError
from lora_sdk.compile.isa import Command
from lora_sdk.plan.model_plan import Plan

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
