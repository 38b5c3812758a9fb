"""Chooses inputs to commit from those that fuzzing has found:
`python -m tests.fuzz.keep [NAME...]`. The smallest of those that cover more than others, some taken
and some refused, at most MAX_BYTES and MAX_INPUTS a target, beside those whose names are no
digests: seeds, and inputs that had a fault."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from tests.fuzz.campaign import BUILD, C_TARGETS, ROOT, program
from tests.fuzz.corpora import CORPORA, inputs
from tests.fuzz.targets import TARGETS, opened

MAX_BYTES = 6 << 10
MAX_INPUTS = 16
MAX_SINGLE = 12 << 10  # of the one that is taken, where no smaller one is


def merged(target: str, folder: str) -> list[Path]:
    """The found inputs without those that add no coverage, smallest first."""
    command = [*program(target), "-merge=1", "-max_len=65536", folder, str(BUILD / "work" / target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return sorted(Path(folder).iterdir(), key=lambda path: (path.stat().st_size, path.name))


def are_taken(target: str, paths: list[Path]) -> list[bool]:
    """Whether each input is taken."""
    if target in C_TARGETS:
        command = str(BUILD / "replay" / target)
        said = [subprocess.run([command, path], capture_output=True, text=True).stdout
                for path in paths]  # fmt: skip
        return [re.search(r" 1 taken", line) is not None for line in said]
    with opened(target) as opening:
        return [opening.run(path.read_bytes()) for path in paths]


def chosen(paths: list[Path], room: int, count: int) -> list[Path]:
    """The smallest that fit, and one in any case."""
    found = []
    for path in paths:
        size = path.stat().st_size
        if (size > room or len(found) >= count) and (found or size > MAX_SINGLE):
            break
        found.append(path)
        room -= size
    return found


def keep(target: str) -> None:
    """Replaces what an earlier run has added to a target's corpus."""
    for path in inputs(target):
        if re.fullmatch(r"[0-9a-f]{12}", path.name):
            path.unlink()
    (CORPORA / target).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lora-fuzz-") as folder:
        paths = merged(target, folder)
        taken = are_taken(target, paths)
        for wanted in (True, False):
            of_kind = [path for path, found in zip(paths, taken, strict=True) if found == wanted]
            for path in chosen(of_kind, MAX_BYTES // 2, MAX_INPUTS // 2):
                data = path.read_bytes()
                (CORPORA / target / sha256(data).hexdigest()[:12]).write_bytes(data)
    size = sum(path.stat().st_size for path in inputs(target))
    print(
        f"{target}: {len(inputs(target))} inputs, {size} bytes; {sum(taken)} of {len(taken)} good"
    )


def main() -> None:
    """All targets, or those that are named."""
    for target in sys.argv[1:] or [*C_TARGETS, *TARGETS]:
        keep(target)


if __name__ == "__main__":
    main()
