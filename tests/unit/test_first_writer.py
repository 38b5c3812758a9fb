"""The first writer of a value that is not finite, where boards' lists differ."""

from __future__ import annotations

import numpy as np

from lora_host import abi
from lora_sdk.compile.isa import NO_LAYER, Command
from lora_sdk.step.runner import first_board, first_row, nonfinite_error


def commands(*names: tuple[int, str]) -> list[Command]:
    return [Command(what=what, layer=layer) for layer, what in names]


NAMES = [
    (NO_LAYER, "embed"),
    (0, "matrix qkv"),
    (0, "attention"),
    (0, "norm"),
    (0, "gather input"),
    (0, "norm"),
    (1, "matrix qkv"),
    (1, "attention"),
    (1, "matrix o"),
]
# A board without heads lacks what belongs to them, so its later commands have lower indices.
LISTS = {0: commands(*NAMES), 1: commands(*(n for n in NAMES if n[1] not in ("attention",)))}


def test_indices_of_different_lists_do_not_compare() -> None:
    attention, passed_on = 7, 6  # layer 1 attention on board 0; layer 1 o on board 1
    assert str(LISTS[0][attention]) == "layer 1 attention"
    assert str(LISTS[1][passed_on]) == "layer 1 matrix o"
    assert first_board(LISTS, {0: attention, 1: passed_on}) == 0


def test_commands_of_one_name_are_told_apart() -> None:
    first, second = 2, 5  # the first norm of layer 0 on board 1, the second on board 0
    assert first_board(LISTS, {0: second, 1: first}) == 1
    assert first_board(LISTS, {0: 3, 1: 4}) == 0


def test_of_equal_places_the_lowest_board_is_named() -> None:
    assert first_board(LISTS, {1: 0, 0: 0}) == 0


def test_the_first_row_is_that_of_all_boards_with_columns_of_the_command() -> None:
    """Each board counts its own columns; a later command's row does not matter."""
    completions = np.zeros(3, abi.dtype("completion"))
    completions["nonfinite_count"] = 1
    completions["nonfinite_index"] = [1, 1, 4]  # qkv on two boards, a gather on the third
    completions["nonfinite_row"] = [13, 5, 0]
    lists = {**LISTS, 2: LISTS[0]}
    assert first_row(lists, completions, 0) == 5
    completions["nonfinite_row"] = [4, 5, 0]
    assert first_row(lists, completions, 0) == 4


def test_an_index_outside_the_list_is_still_named() -> None:
    assert first_board(LISTS, {0: 99, 1: 2}) == 1
    error = nonfinite_error(LISTS[0], 99, "first in row 3", 3, adapted=False)
    assert "command 99 wrote NaN" in str(error) and error.row == 3
    assert "adapter" not in str(error)
