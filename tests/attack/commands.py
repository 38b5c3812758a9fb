"""Whole commands on folders of which one file is mutated or grown."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lora_sdk import demo_model_path
from tests.attack import grow
from tests.commands import LORA, RUN
from tests.fuzz import structure
from tests.hostile_cases.case import Place, Stock, Words
from tests.hostile_gguf import small
from tests.hostile_host import ROOT
from tests.hostile_requests import LINES, TEMPLATE
from tests.processes import environment

PROCESSOR_SECONDS, WALL_SECONDS = 60, 300
MEGABYTES = 1536
LOOK_SECONDS = 0.05
MAX_LINE = 600
BESIDES = (
    "note: ",
    "measured: ",
    "lora-run: warning: ",
    "lora: warning: ",
)  # lines beside the error's
SHORT = ("lora-run", "-p", "hello", "-n", "1", "-m")
Mutate = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Ended:
    """A command's end: its exit code, negative for a signal, what it wrote on stderr, and its
    peak. `why`: it was killed for that."""

    code: int
    stderr: str
    megabytes: float
    why: str = ""


def run(words: Words) -> Ended:
    """A command held to MEGABYTES, PROCESSOR_SECONDS and WALL_SECONDS."""
    first = RUN if words[0] == "lora-run" else LORA
    rest = words[1:] if words[0] == "lora-run" else words
    limits = (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 5)
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            [sys.executable, "-c", first, *map(str, rest)], env=environment(), stderr=stderr,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        resource.prlimit(child.pid, resource.RLIMIT_CPU, limits)
        why, peak = _watched(child.pid, time.monotonic() + WALL_SECONDS)
        if why:
            child.kill()
        child.wait()
        stderr.seek(0)
        text = stderr.read(1 << 20).decode("utf-8", "replace")
    return Ended(child.returncode, text, peak, why)


def _watched(pid: int, end: float) -> tuple[str, float]:
    """Until the process ends or takes too much: (why it must end, its peak in MB)."""
    peak = 0.0
    status = Path(f"/proc/{pid}/status")
    while True:
        found = re.search(r"VmHWM:\s+(\d+)", status.read_text())
        if found is None:  # it has ended and nobody has asked for its exit code yet
            return "", peak
        peak = max(peak, int(found[1]) / 1024)
        if peak > MEGABYTES:
            return f"{peak:.0f} MB", peak
        if time.monotonic() > end:
            return f"no end within {WALL_SECONDS} s", peak
        time.sleep(LOOK_SECONDS)


def judged(ended: Ended) -> str:
    """What is wrong with how a command ended, "" for nothing: success, or one line on stderr and
    exit code 1 or 2."""
    if ended.why or ended.megabytes > MEGABYTES:
        return ended.why or f"{ended.megabytes:.0f} MB"
    lines = [line for line in ended.stderr.splitlines() if not line.startswith(BESIDES)]
    if "Traceback" in ended.stderr or "panicked" in ended.stderr:
        return f"a traceback: {lines[-1]!r:.300}"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}: {ended.stderr[-300:]!r}"
    if ended.code and (len(lines) != 1 or len(lines[0]) > MAX_LINE or not lines[0].isprintable()):
        return f"no line of {MAX_LINE} printable characters: {ended.stderr[:300]!r}"
    return ""


def _either(inner: Mutate, grown: Mutate) -> Mutate:
    def mutate(random: Random, data: bytes) -> bytes:
        for _ in range(random.choice((1, 1, 2, 3))):
            data = (grown if random.random() < 0.3 else inner)(random, data)
        return data

    return mutate


AS_JSON = _either(structure.of_json, grow.of_json)
AS_TEXT = _either(structure.of_text, grow.of_bytes)
AS_BYTES = _either(structure.of_bytes, grow.of_bytes)
AS_TENSORS = _either(structure.of_safetensors, grow.of_bytes)
FOLDER: dict[str, Mutate] = {
    "config.json": AS_JSON,
    "generation_config.json": AS_JSON,
    "tokenizer.json": AS_JSON,
    "tokenizer_config.json": AS_JSON,
    "model.safetensors": AS_TENSORS,
    "chat_template.jinja": AS_TEXT,
    "speculation.json": AS_JSON,
}
ADAPTER: dict[str, Mutate] = {
    "adapter_config.json": AS_JSON,
    "adapter_model.safetensors": AS_TENSORS,
}


def model(place: Place, random: Random) -> Words:
    """A file of the demo model, or of a small one."""
    source = random.choice((demo_model_path(), place.stock.model(), place.stock.quantized()))
    name = random.choice(
        [name for name in FOLDER if (source / name).exists()] + ["chat_template.jinja"]
    )
    whole = TEMPLATE.encode() if name.endswith("jinja") else (source / name).read_bytes()
    folder = place.copy(source, {name: FOLDER[name](random, whole)}, "model")
    if name in ("chat_template.jinja", "tokenizer_config.json"):
        return ("lora-run", "--chat", *SHORT[1:], folder)
    return (*random.choice((SHORT, SHORT, ("plan", "-m"))), folder)


def sharded(place: Place, random: Random) -> Words:
    """The index of a model in several files."""
    source, name = place.stock.sharded(), "model.safetensors.index.json"
    return (*SHORT, place.copy(source, {name: AS_JSON(random, (source / name).read_bytes())}))


def adapter(place: Place, random: Random) -> Words:
    """A file of an adapter."""
    source, name = place.stock.adapter(), random.choice(list(ADAPTER))
    changed = ADAPTER[name](random, (source / name).read_bytes())
    return (*SHORT, place.stock.model(), "--adapter", f"a={place.copy(source, {name: changed})}")


def gguf(place: Place, random: Random) -> Words:
    """A GGUF file."""
    path = place.path / "model.gguf"
    small(path)
    path.write_bytes(AS_BYTES(random, path.read_bytes()))
    return (*random.choice((SHORT, ("plan", "-m"), ("inspect",))), path)


def overlay(place: Place, random: Random) -> Words:
    """The manifest, the firmware or the container of an overlay."""
    folder = place.overlay({}, random.choice(("lora_f_u280", "lora_f_v80", "lora_q_u280")))
    path = random.choice(sorted(folder.iterdir()))
    mutate = AS_TEXT if path.suffix in (".yaml", ".cfg") else AS_BYTES
    path.write_bytes(mutate(random, path.read_bytes()))
    if path.suffix in (".xclbin", ".vrtbin"):
        return ("inspect", path)
    return (*SHORT, place.stock.model(), "--overlay", folder)


def cluster(place: Place, random: Random) -> Words:
    """A cluster file."""
    whole = (ROOT / "tests" / "topologies" / "ring4.yaml").read_bytes()
    path = place.path / "cluster.yaml"
    path.write_bytes(AS_TEXT(random, whole))
    return ("links", "--cluster", path)


def batch(place: Place, random: Random) -> Words:
    """A file of prompts."""
    path = place.path / "batch.jsonl"
    lines = b"\n".join(json.dumps(line).encode() for line in LINES)
    path.write_bytes(_either(structure.of_lines, grow.of_bytes)(random, lines))
    return ("lora-run", "-n", "1", "-m", place.stock.model(), "--batch", path)


KINDS: dict[str, Callable[[Place, Random], Words]] = {
    one.__name__: one for one in (model, sharded, adapter, gguf, overlay, cluster, batch)
}


def attack(
    kind: str, stock: Stock, seed: str, count: int, kept: Path
) -> tuple[Counter[str], list[str]]:
    """So many commands: how they ended, and findings. The folder of a finding stays in `kept`."""
    ends: Counter[str] = Counter()
    findings = []
    for index in range(count):
        random = Random(f"{kind} {seed} {index}")
        with tempfile.TemporaryDirectory(prefix="lora-attack-") as name:
            words = KINDS[kind](Place(Path(name), stock), random)
            ended = run(words)
            ends["taken" if ended.code == 0 else "refused"] += 1
            if wrong := judged(ended):
                target = kept / f"{kind}-{seed}-{index}"
                _keep(Path(name), target)
                findings.append(f"{' '.join(map(str, words))!r:.300} ({target}): {wrong}")
    return ends, findings


def _keep(folder: Path, target: Path) -> None:
    """Copies what was mutated; links stay links into the stock."""
    subprocess.run(["cp", "-a", str(folder), str(target)], check=True)
