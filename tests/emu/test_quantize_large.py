"""`lora quantize` of a model that is larger than what it holds: memory, and kills in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.commands import LORA, command
from tests.measured_command import Measured, measured
from tests.processes import environment

GB, MB = 10**9, 10**6
HOUR = 3600
# 7.3 GB for layers of LLaMA2-7B's width, of which all 32 are 13 GB in FP16 and 26 GB in FP32.
WIDE_PEAK = 9 * GB
SMALL_SHARDS = f"from lora_sdk.quant import folder_writer; folder_writer.SHARD_BYTES = 1\n{LORA}"


def made(folder: Path, **fields: int) -> Path:
    """A random FP16 model of LLaMA's family."""
    config = folder / "config.json"
    family = {"model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    config.write_text(json.dumps({**family, **fields}))
    model = folder / f"model-{fields['num_hidden_layers']}"
    done = command(LORA, "lab", "synth", config, model, timeout=400)
    assert done.returncode == 0, done.stderr.decode()
    return model


@pytest.mark.slow
def test_of_more_layers_no_more_is_in_memory(large_folder: Callable[[int, int], Path]) -> None:
    """Twelve layers more are 77 MB of FP16. The peak, reached by the fourth, may grow by 25."""
    folder, peaks = large_folder(GB, GB), []
    for layers in (4, 16):
        model = made(
            folder, hidden_size=512, num_hidden_layers=layers, num_attention_heads=4,
            num_key_value_heads=4, intermediate_size=1408, vocab_size=512,
            max_position_embeddings=1024,
        )  # fmt: skip
        done = measured(
            SMALL_SHARDS, "quantize", model, folder / f"out-{layers}", "--scheme", "w4a8",
            "--windows", 1, "--rounding", "nearest", "--no-smooth", timeout=HOUR,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        peaks.append(done.peak)
    print(f"peaks: {[peak // MB for peak in peaks]} MB")
    assert peaks[1] - peaks[0] < 25 * MB, peaks


def arguments_of(model: Path, out: Path) -> list[object]:
    return ["quantize", model, out, "--scheme", "w4a8", "--windows", 2, "--json"]


def whole(model: Path, out: Path, *more: str) -> Measured:
    began = time.monotonic()
    done = measured(LORA, *arguments_of(model, out), *more, timeout=HOUR)
    print(f"{' '.join(more)} {time.monotonic() - began:.0f} s, {done.peak / GB:.2f} GB")
    assert done.returncode == 0, done.stderr.decode()
    assert done.peak < WIDE_PEAK
    return done


@contextmanager
def resumable(model: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [*map(str, arguments_of(model, out)), "--resume"]
    started = subprocess.Popen(
        [sys.executable, "-c", LORA, *words], env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def worked(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processors."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def layers_done(out: Path) -> int:
    record = out.parent / f".{out.name}.resume" / "resume.json"
    return json.loads(record.read_text())["layers"] if record.exists() else 0


def killed(model: Path, out: Path, layers: int, seconds: float) -> None:
    """A run that is killed once it has kept this many layers and worked on the next for so long."""
    with resumable(model, out) as started:
        until, kept_at = time.monotonic() + HOUR, float("inf")
        while worked(started) < kept_at + seconds:
            assert started.poll() is None and time.monotonic() < until
            if kept_at == float("inf") and layers_done(out) == layers:
                kept_at = worked(started)
            time.sleep(0.05)
        started.send_signal(signal.SIGKILL)
        assert started.wait() == -signal.SIGKILL
    assert layers_done(out) == layers and not out.exists()


def digests(folder: Path) -> dict[str, str]:
    return {path.name: blake2b(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.long
def test_killed_in_a_layer_and_in_the_head(large_folder: Callable[[int, int], Path]) -> None:
    """Two layers of LLaMA2-7B's width, 1.3 GB: the same bytes as without the kills."""
    folder = large_folder(WIDE_PEAK + GB, 4 * GB)
    model = made(
        folder, hidden_size=4096, num_hidden_layers=2, num_attention_heads=32,
        num_key_value_heads=32, intermediate_size=11008, vocab_size=32000,
        max_position_embeddings=4096,
    )  # fmt: skip
    (folder / "outs").mkdir()
    plain, out = folder / "plain", folder / "outs" / "out"
    whole(model, plain)
    killed(model, out, layers=1, seconds=20)
    killed(model, out, layers=2, seconds=2)
    report = json.loads(whole(model, out, "--resume").stdout)
    assert report["resumed_layers"] == 2
    assert digests(out) == digests(plain)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
