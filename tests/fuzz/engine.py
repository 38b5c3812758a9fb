"""One target under Atheris: `python -m tests.fuzz.engine NAME LIBFUZZER-ARGUMENT...`. The package
is a part of the extra `fuzz`."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["lora_sdk", "lora_host"]):
    from tests.fuzz.target import Target
    from tests.fuzz.targets import opened

from tests.mutations import memory_limit


def mutator(target: Target) -> object:
    """libFuzzer's own mutations and, as often, those that keep the format's structure."""

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        random = Random(seed)
        if target.mutate is None or random.random() < 0.5:
            changed: bytes = atheris.Mutate(data, largest)
            return changed
        return target.mutate(random, bytes(data))[:largest]

    return mutate


def main() -> None:
    """Fuzzes until libFuzzer's limits; the first fault ends the process and is kept as a file."""
    name, *arguments = sys.argv[1:]
    corpus = Path(next(one for one in arguments if not one.startswith("-")))
    logging.getLogger("lora_sdk").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with opened(name) as target:
        with atheris.instrument_imports(include=["lora_sdk", "lora_host"]):  # what is loaded late
            for index, data in enumerate(target.seeds()):
                if "-merge=1" not in arguments:  # there it is the folder of what is chosen
                    (corpus / f"seed-{index}").write_bytes(data)
                target.run(data)
        target.settle()
        atheris.Setup(
            [sys.argv[0], *arguments], target.run, custom_mutator=mutator(target),
            internal_libfuzzer=True,
        )  # fmt: skip
        with memory_limit():
            atheris.Fuzz()


if __name__ == "__main__":
    main()
