"""Mutated files of one target: `python -m tests.attack.child NAME SEED COUNT FOLDER`, one line of
JSON. The input that has a fault is kept in FOLDER, also if it ends this process."""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from pathlib import Path
from random import Random

from tests.attack import grow
from tests.fuzz.target import Target
from tests.fuzz.targets import opened
from tests.mutations import memory_limit

MUTATED_BYTES = 1 << 20  # beyond that a mutation takes longer than what is attacked


def made(target: Target, seeds: list[bytes], random: Random) -> bytes:
    """A valid input, or one of the first ones, after one to five mutations."""
    data = random.choice(seeds)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        if random.random() < 0.1:
            data = grow.of_json(random, data)
        elif target.mutate is not None and len(data) < MUTATED_BYTES:
            data = target.mutate(random, data)
    return data


def main() -> None:
    """Ends at the first fault."""
    name, seed, count, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    logging.getLogger("lora_sdk").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    taken = refused = 0
    fault = None
    with opened(name) as target:
        seeds = target.seeds()
        for one in seeds:
            target.run(one)
        target.settle()
        for index in range(count):
            data = made(target, seeds, Random(f"{name} {seed} {index}"))
            kept = folder / f"{name}-{seed}-{index}"
            kept.write_bytes(data)  # before it is read: a crash leaves it
            try:
                with memory_limit():
                    was_taken = target.run(data)
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                fault = f"{kept}: {type(error).__name__}: {error!s:.300} ({last})"
                break
            kept.unlink()
            taken, refused = taken + was_taken, refused + (not was_taken)
    print(json.dumps({"taken": taken, "refused": refused, "fault": fault}))


if __name__ == "__main__":
    main()
