"""Runs targets under their fuzzers, each in a process of its own, and counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.corpora import CORPORA, HERE, inputs
from tests.fuzz.targets import memory
from tests.mutations import memory_limit

ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"
NICE = 19
INPUT_SECONDS = 120  # of the clock: others may have the machine; processor time is held closer
MEGABYTES = 2048  # of a whole process; what one input may take is limited besides
C_TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in (HERE / "c").glob("fuzz_*.c"))
_COUNT = re.compile(r"stat::number_of_executed_units:\s*(\d+)|Done (\d+) runs")
_COVERED = re.compile(r"cov: (\d+)")
_SAID = re.compile(r"Error|ERROR|SUMMARY|Fault|Exception|does not hold|outside of")


@dataclass
class Outcome:
    """Of one target: inputs run, edges covered, files of inputs with a fault, what was said."""

    target: str
    executions: int = 0
    covered: int = 0
    found: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def program(target: str) -> list[str]:
    """The command that fuzzes a target, without libFuzzer's arguments."""
    if target in C_TARGETS:
        return [str(BUILD / "bin" / target)]
    return [sys.executable, "-m", "tests.fuzz.engine", target]


def build() -> None:
    """The C targets. CalledProcessError: the compiler has said why."""
    subprocess.run(["make", "-s", "-j2", "-C", str(HERE / "c"), f"BUILD={BUILD}"], check=True)


def fuzz(target: str, seconds: int) -> Outcome:
    """One target for so long."""
    work, found = BUILD / "work" / target, BUILD / "found"
    for folder in (work, found, CORPORA / target):
        folder.mkdir(parents=True, exist_ok=True)
    known = {path.name for path in found.iterdir()}
    command = [
        *program(target), f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEGABYTES}", f"-artifact_prefix={found}/{target}-", "-max_len=65536",
        "-print_final_stats=1", *_dictionary(target), str(work), str(CORPORA / target),
    ]  # fmt: skip
    log = BUILD / "work" / f"{target}.log"
    with log.open("wb") as file, TemporaryDirectory(prefix="lora-fuzz-", dir=memory()) as folder:
        done = subprocess.run(  # libFuzzer ends the process at once, whatever is open
            ["nice", "-n", str(NICE), *command], cwd=ROOT, stdout=file, stderr=file,
            env={**os.environ, "TMPDIR": folder},
        )  # fmt: skip
    return _outcome(target, done.returncode, log, sorted(
        str(path) for path in found.glob(f"{target}-*") if path.name not in known))  # fmt: skip


def _dictionary(target: str) -> list[str]:
    path = HERE / "dictionaries" / f"{target}.dict"
    return [f"-dict={path}"] if path.exists() else []


def _outcome(target: str, code: int, log: Path, found: list[str]) -> Outcome:
    text = log.read_text(errors="replace")
    counts = [int(one or two) for one, two in _COUNT.findall(text)]
    outcome = Outcome(target, max(counts, default=0), found=found)
    outcome.covered = max(map(int, _COVERED.findall(text)), default=0)
    if code or found or not outcome.executions:
        outcome.said = [line for line in text.splitlines() if _SAID.search(line)][:6]
        outcome.said.append(f"exit code {code}; {log}")
    return outcome


def campaign(targets: Sequence[str], seconds: int, jobs: int) -> list[Outcome]:
    """All of them, `jobs` at a time, in about `seconds` together."""
    each = max(1, seconds * jobs // len(targets))
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda target: fuzz(target, each), targets))


def replay(target: str, paths: Sequence[Path]) -> int:
    """Inputs of one target, or all that are committed, once each. The exit code; a fault ends it
    with what the target says."""
    chosen = list(paths) or inputs(target)
    if target in C_TARGETS:
        folder = HERE / "c"
        subprocess.run(
            ["make", "-s", "-C", str(folder), f"BUILD={BUILD}", f"{BUILD}/replay/{target}"],
            check=True,
        )
        command = [str(BUILD / "replay" / target), *map(str, chosen)]
        return subprocess.run(command).returncode
    from tests.fuzz.targets import opened

    with opened(target) as opening, memory_limit():
        for path in chosen:
            taken = opening.run(path.read_bytes())
            print(f"{path}: {'taken' if taken else 'refused'}")
    return 0
