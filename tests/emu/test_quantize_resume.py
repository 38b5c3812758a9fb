"""`lora quantize --resume`: killed at any write, it goes on and gives the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.quant import folder_writer, kept_work, tensor_file
from lora_sdk.quant.quantize import Report, quantize
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import random_windows
from tests.commands import LORA, command, one_line_error
from tests.processes import environment
from tests.variants import variant, write_checkpoint

RECIPE = Recipe("w4a8", group=32)
KILLED = 9


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_linear"), tmp_path_factory.mktemp("m") / "plain", "x3")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first holds two layers."""
    monkeypatch.setattr(folder_writer, "SHARD_BYTES", 200_000)


def run(model: Path, out: Path, resume: bool = True, recipe: Recipe = RECIPE) -> Report:
    return quantize(model, out, recipe, random_windows(64, 2), None, resume)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def dies(model: Path, out: Path, at: int) -> bool:
    """Quantizes in a process that ends without cleaning up at its `at`-th replace, write or removal
    of a file. False if it has fewer."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    signal.alarm(120)  # it does not hang
    count = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal count
            count += 1
            if count > at:
                os._exit(KILLED)
            return function(*arguments, **named)

        return call

    kept_work.os.replace = counted(os.replace)  # type: ignore[attr-defined,assignment]
    tensor_file.save_file = counted(tensor_file.save_file)  # type: ignore[assignment]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign,assignment]
    Path.rename = counted(Path.rename)  # type: ignore[method-assign,assignment]
    try:
        run(model, out)
    finally:
        os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("shard_bytes", [200_000, pytest.param(400_000, marks=pytest.mark.long)])
def test_killed_at_every_write(
    shard_bytes: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of two layers, or one of all that wait for it as files of their own."""
    monkeypatch.setattr(folder_writer, "SHARD_BYTES", shard_bytes)
    plain = run(model, tmp_path / "plain", resume=False)
    wanted = content(tmp_path / "plain")
    resumed, at = set(), 0
    while dies(model, tmp_path / f"out{at}", at):
        assert not (tmp_path / f"out{at}").exists()
        report = run(model, tmp_path / f"out{at}")
        assert content(tmp_path / f"out{at}") == wanted, at
        assert (report.strengths, report.errors) == (plain.strengths, plain.errors)
        resumed.add(report.resumed)
        at += 1
    assert at > 10 and resumed == set(range(len(plain.strengths) + 1))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_what_lies_in_the_folder_without_a_record_goes(model: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.resume").mkdir()
    (tmp_path / ".out.resume" / "shard-7.partial").write_bytes(b"of another model")
    run(model, tmp_path / "out")
    assert not (tmp_path / "out" / "shard-7.partial").exists()


def test_killed_twice(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "plain", resume=False)
    assert dies(model, tmp_path / "out", 4)
    assert dies(model, tmp_path / "out", 3)
    run(model, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "plain")


WAITING = 1 << 30  # bytes of a shard that never fills


@pytest.fixture(scope="module")
def killed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kept folder of a run that was killed after its first layer, before its first shard."""
    folder = tmp_path_factory.mktemp("killed")
    kept = folder / ".out.resume"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(folder_writer, "SHARD_BYTES", WAITING)
        at = 0
        while not (kept / "resume.json").exists():
            assert dies(model, folder / "out", at)
            at += 1
    return kept


@pytest.fixture
def interrupted(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, beside `out`."""
    monkeypatch.setattr(folder_writer, "SHARD_BYTES", WAITING)
    return shutil.copytree(killed, tmp_path / killed.name)


def test_other_arguments_are_refused(model: Path, interrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="another model, text or options"):
        run(model, tmp_path / "out", recipe=Recipe("w8a8"))
    weights = next(model.glob("*.safetensors"))
    times = (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    os.utime(weights, ns=(1, 1))
    try:
        with pytest.raises(RequestError, match="another model, text or options"):
            run(model, tmp_path / "out")
    finally:
        os.utime(weights, ns=times)


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def changed_record(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def do(kept: Path) -> None:
        path = kept / "resume.json"
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))

    return do


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda kept: spoil(next(kept.glob("layer-*"))), "has changed"),
        (lambda kept: spoil(next(kept.glob("streams-*"))), "has changed"),
        (lambda kept: next(kept.glob("layer-*")).unlink(), "is missing"),
        (lambda kept: (kept / "resume.json").write_text("{"), "resume.json"),
        (changed_record(lambda record: record.pop("layers")), "expected the fields"),
        (changed_record(lambda record: record.update(version=2)), "of version 1"),
        (changed_record(lambda record: record.update(layers="1")), "layers: expected int"),
        (
            changed_record(lambda record: record.update(files={"../x": [1, ""]})),
            "expected a plain name",
        ),
        (changed_record(lambda record: record.update(files={"x": 5})), "expected a plain name"),
        (changed_record(lambda record: record.update(shards=[[5]])), "lists of names"),
        (changed_record(lambda record: record.update(layers=2)), "results and files of 2 layers"),
        (changed_record(lambda record: record.update(shards=[["a"]])), "results and files of 1"),
        (changed_record(lambda record: record.update(errors={"a": "b"})), "expected numbers"),
    ],
)
def test_damaged_work_is_refused(
    damage: Callable[[Path], None], said: str, model: Path, interrupted: Path, tmp_path: Path
) -> None:
    damage(interrupted)
    with pytest.raises(RequestError, match=said) as caught:
        run(model, tmp_path / "out")
    assert "begin again" in str(caught.value) and not (tmp_path / "out").exists()


def test_one_process_at_a_time(model: Path, tmp_path: Path) -> None:
    kept = kept_work.KeptWork(tmp_path / "out", "inputs")
    with kept, pytest.raises(RequestError, match="another process"):
        run(model, tmp_path / "out")
    (tmp_path / "target").mkdir()
    (tmp_path / ".linked.resume").symlink_to(tmp_path / "target")
    with pytest.raises(RequestError, match="cannot be made"):
        run(model, tmp_path / "linked")


def interrupted_command(arguments: list[object], out: Path) -> bool:
    """Sends an interrupt once a layer is done; False if the command was faster."""
    started = subprocess.Popen(
        [sys.executable, "-c", LORA, "quantize", *map(str, arguments), "--resume"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (out.parent / f".{out.name}.resume" / "resume.json").exists():
        assert time.monotonic() < until
        if started.poll() is not None:
            break
        time.sleep(0.0005)
    started.send_signal(signal.SIGINT)
    told = started.communicate()[1].decode()
    if started.returncode == 0:
        return False
    assert "the same command goes on" in told and not out.exists()
    return True


def test_the_command_goes_on(model: Path, tmp_path: Path) -> None:
    """Interrupted from the keyboard, then the same command."""
    text = tmp_path / "text.txt"
    text.write_text("def one(two):\n    return three + 4\n" * 400)
    options: list[object] = ["--scheme", "w8a8", "--calibration", text, "--windows", "8"]
    whole = command(LORA, "quantize", model, tmp_path / "plain", *options)
    assert whole.returncode == 0, whole.stderr.decode()
    outs = (tmp_path / f"out{number}" for number in range(10))
    out = next(out for out in outs if interrupted_command([model, out, *options], out))
    done = command(LORA, "quantize", model, out, *options, "--resume", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["resumed_layers"] > 0
    assert content(out) == content(tmp_path / "plain")
    assert not (tmp_path / f".{out.name}.resume").exists()
    again = command(LORA, "quantize", model, out, *options, "--resume")
    one_line_error(again, "exists already")
