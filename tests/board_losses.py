"""Boards that leave for good, at seeded random moments of mixed requests.

`python -m tests.board_losses BOARDS FIRST LAST` runs these seeds; a text that differs ends it."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from functools import cache
from pathlib import Path

from lora_host import abi
from tests.recovery_rig import (
    Disturbed,
    Folders,
    inject,
    mixed,
    opened,
    speculation,
    texts,
    write_folders,
)


@cache
def undisturbed(folders: Folders, seed: int) -> list[object]:
    """The texts of `mixed(seed)` without failures."""
    with opened(folders, 1) as engine:
        return texts(engine, mixed(seed))


def lose_boards(folders: Folders, boards: int, seed: int) -> int:
    """Mixed requests with speculation while boards leave at random; returns the losses."""
    draws = random.Random(seed)
    requests = mixed(seed)
    want = undisturbed(folders, seed)
    proposer = speculation(folders, "lookup")
    with opened(folders, boards, speculation=proposer) as engine:

        def lose() -> None:
            if engine.cluster.size > 1:
                board = draws.randrange(engine.cluster.size)
                inject(engine, board, abi.FAULT_BOARD_LOST, until_reset=False)

        steps = {draws.randrange(14): lose for _ in range(draws.randint(1, 2))}
        with Disturbed(engine, steps):
            assert texts(engine, requests) == want, (boards, seed)
        return len(engine.recoveries)


def main(boards: int, first: int, last: int) -> None:
    """Seeds `first` to before `last`."""
    logging.getLogger("lora_sdk.recovery").setLevel(logging.ERROR)
    losses = 0
    with tempfile.TemporaryDirectory() as root:
        folders = write_folders(Path(root))
        for seed in range(first, last):
            losses += lose_boards(folders, boards, seed)
            undisturbed.cache_clear()
            if (seed + 1 - first) % 50 == 0 or seed + 1 == last:
                print(f"{boards} boards: {seed + 1 - first} seeds, {losses} losses", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
