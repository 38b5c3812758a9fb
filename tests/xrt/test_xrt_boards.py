"""Emulated boards behind the real XRT's software emulation: the same bytes as without it, and one
clear error or recovery for whatever goes wrong."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.alveo_container import describe, emulation_container
from lora_host.overlay import load_overlay
from lora_host.xclbin import pack_connections
from lora_host.xrt_environment import XrtEnvironment
from tests.xrt_rig import finish, said, start

pytestmark = pytest.mark.xrt

TOKENS = """
from lora_sdk import Engine, SamplingParams
with Engine(**eval(sys.argv[1])) as engine:
    result = engine.generate("import os\\n\\ndef read_file(path):", SamplingParams(max_tokens=64))
    print(result.outputs[0].token_ids)
"""


@pytest.fixture
def one() -> Iterator[XrtEnvironment]:
    with XrtEnvironment(1) as place:
        yield place


def test_the_same_64_tokens_through_the_real_runtime() -> None:
    with XrtEnvironment(4) as place:
        devices = [f"xrt:{i}" for i in range(4)]
        through = said(place, TOKENS, repr({"devices": devices}))
        emulated = said(place, TOKENS, repr({"boards": 4}))
    assert through.count(",") == 63
    assert through == emulated


def test_memory_and_its_limits(one: XrtEnvironment) -> None:
    code = """
import zlib
cluster = opened("xrt:0")
cluster.reserve(0, 32, 1 << 16)
cluster.reserve(0, 17, 1 << 20, offset=4096)
data = bytes(range(256)) * 16
for bank, offset in ((32, 8192), (17, 5001)):
    cluster.write(0, bank, offset, data)
    assert cluster.read(0, bank, offset, len(data)) == data
    assert cluster.checksum(0, bank, offset, len(data)) == zlib.crc32(data)
for act in (lambda: cluster.read(0, 17, 4096 + (1 << 20) - 8, 16),
            lambda: cluster.write(0, 17, 0, b"x"),
            lambda: cluster.reserve(0, 3, 1 << 29),
            lambda: (cluster.reserve(0, 4, 200 << 20), cluster.reserve(0, 4, 100 << 20,
                                                                      offset=200 << 20))):
    try:
        act()
    except PlacementError as error:
        print(error)
cluster.close()
"""
    lines = said(one, code).splitlines()
    assert len(lines) == 4
    assert "16 B at offset" in lines[0] and "8 B available" in lines[0]
    assert "bank 3" in lines[2] and "512.0 MiB" in lines[2] and "256.0 MiB" in lines[2]
    assert "bank 4" in lines[3] and "100.0 MiB" in lines[3]


def test_a_bank_that_the_container_does_not_connect(one: XrtEnvironment, tmp_path: Path) -> None:
    overlay = load_overlay("lora_f_u280")
    whole = emulation_container(overlay)
    rows = pack_connections(describe(overlay).connections)
    assert whole.count(rows) == 1
    kept = [row for row in describe(overlay).connections if row.memory != 7]
    kept.append(kept[-1])  # the section keeps its size
    path = tmp_path / "loose.xclbin"
    path.write_bytes(whole.replace(rows, pack_connections(kept)))
    code = """
import dataclasses, pathlib
overlay = dataclasses.replace(load_overlay("lora_f_u280"), container=pathlib.Path(sys.argv[1]))
cluster = Cluster.open(devices=["xrt:0"], overlay=overlay)
cluster.reserve(0, 6, 4096)
try:
    cluster.reserve(0, 7, 4096)
except PlacementError as error:
    print(error, error.failure.bank)
cluster.close()
"""
    out = said(one, code, str(path))
    assert "bank 7 (HBM[7])" in out and "does not connect this bank" in out
    assert dataclasses.is_dataclass(overlay)


def test_a_missing_cable_is_named() -> None:
    code = """
cluster = opened("xrt:0", "xrt:1", timeouts={"link_up_us": 300_000, "poll_us": 1000})
begin = time.monotonic()
try:
    cluster.links_up(cluster.cables)
except LinkError as error:
    print(error, time.monotonic() - begin < 2 * (1.1 + 0.3))
cluster.close()
"""
    with XrtEnvironment(2, cables=()) as place:
        out = said(place, code)
    assert out.strip().endswith("True")
    ends = "link board 0 (xrt:0) port 1 - board 1 (xrt:1) port 0", "link board 1 (xrt:1) port 0"
    assert any(end in out for end in ends)


def test_the_device_process_dies_in_the_middle_of_a_run(one: XrtEnvironment) -> None:
    code = """
import subprocess
from lora_sdk import Engine, SamplingParams
def kill():
    time.sleep(0.4)
    lines = subprocess.run(["ps", "-o", "pid,args", "--ppid", str(os.getpid())],
                           capture_output=True, text=True).stdout.splitlines()
    os.kill(int(next(l for l in lines if "device_process" in l).split()[0]), signal.SIGKILL)
engine = Engine(devices=["xrt:0"], recovery="off")
threading.Thread(target=kill).start()
begin = time.monotonic()
try:
    for _ in range(100):
        engine.generate("a", SamplingParams(max_tokens=200, ignore_eos=True))
except TransportError as error:
    print(error, time.monotonic() - begin < 10)
engine.close()
"""
    out = said(one, code)
    assert "the card has left the bus" in out and out.strip().endswith("True")


HOLD = """
cluster = opened("xrt:0")
print("holding", os.getpid(), flush=True)
time.sleep(60)
"""
TRY = """
try:
    opened("xrt:0").close()
    print("opened")
except TransportError as error:
    print(error)
"""


def test_a_board_held_by_another_process_then_killed(one: XrtEnvironment) -> None:
    holder = start(one, HOLD)
    try:
        assert holder.stdout is not None and holder.stdout.readline().startswith("holding")
        assert f"held by process {holder.pid}" in said(one, TRY)
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        finish(holder)
    assert said(one, TRY) == "opened\n"


def test_reset_and_a_second_opening(one: XrtEnvironment) -> None:
    code = """
cluster = opened("xrt:0")
cluster.reserve(0, 32, 1 << 16)
cluster.reset()
cluster.write(0, 32, 8192, b"again")
print(bytes(cluster.read(0, 32, 8192, 5)))
cluster.close()
opened("xrt:0").close()
"""
    assert "b'again'" in said(one, code)


def test_the_cluster_process_ends_with_its_last_client(one: XrtEnvironment) -> None:
    said(one, TRY)
    end = time.monotonic() + 10
    while time.monotonic() < end and _processes(one.folder):
        time.sleep(0.05)
    assert not _processes(one.folder)


def _processes(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder).encode() in words and b"lora_host.device_process.cluster_process" in words:
            found.append(path.parent.name)
    return found


def test_register_reads_do_not_wait_for_another_boards_run() -> None:
    code = """
from lora_sdk import Engine, SamplingParams
other = opened("xrt:1")
engine = Engine(devices=["xrt:0"])
over = threading.Event()
def work():
    engine.generate("import os\\n" * 20, SamplingParams(max_tokens=100, ignore_eos=True))
    over.set()
thread = threading.Thread(target=work)
thread.start()
reads = 0
while not over.is_set():
    other.register(0, 0, 0x50)
    reads += 1
thread.join()
engine.close()
other.close()
print(reads)
"""
    with XrtEnvironment(2) as place:
        reads = int(said(place, code))
    assert reads > 300  # a read that waits for the other board's run: about a hundred


OWN = """
from lora_sdk.selftest.units import check_units
cluster = opened("xrt:0", "xrt:1", overlay=sys.argv[1])
cluster.links_up(cluster.cables)
print([f"{r.what}: {r.fault}" for r in check_units(cluster) if r.fault], cluster.overlay.name)
cluster.close()
"""


def test_an_overlay_folder_of_ones_own(tmp_path: Path) -> None:
    """Another name, other register bases: container and linker's file are made from its manifest,
    inspected against it, and its board runs every unit's test."""
    source = load_overlay("lora_q_u280")
    folder = tmp_path / "mine"
    shutil.copytree(source.path.parent, folder)
    for old in (*folder.glob("*.xclbin"), *folder.glob("*.cfg")):
        old.unlink()
    named = source.path.read_text().replace("lora_q_u280", "mine")
    text = re.sub(r"0x81([0-9a-f]{4})\b", r"0xa1\1", named)  # bases, not checksums
    (folder / "manifest.yaml").write_text(text)
    with XrtEnvironment(2, overlay=str(folder)) as place:
        lora = "from lora_sdk.cli.main import main; main()"
        built = said(place, lora, "overlay", "build", str(folder))
        assert f"{folder / 'mine.xclbin'}: written" in built and "mine.cfg: written" in built
        assert "nk=lora_ctrl:1" in (folder / "mine.cfg").read_text()
        shown = said(place, lora, "inspect", str(folder / "mine.xclbin"), "--overlay", str(folder))
        assert "overlay mine: fits" in shown and "0xa10000" in shown
        assert said(place, OWN, str(folder)) == "[] mine\n"


def test_the_same_tokens_on_two_kinds_of_board() -> None:
    """XRT's boards are told apart by their platform: no option names the overlay."""
    with XrtEnvironment(2, overlay="lora_f_u55c") as place:
        through = said(place, TOKENS, repr({"devices": ["xrt:0", "xrt:1"]}))
        code = """
cluster = opened("xrt:0", overlay="lora_f_u55c")
(info,) = cluster.infos
print(info.name, info.banks == tuple(bank.usable for bank in cluster.overlay.board.banks))
cluster.reserve(0, 30, 400 << 20)  # more than a bank of the U280 has
cluster.close()
try:
    opened("xrt:0", overlay="lora_f_u280")
except OverlayError as error:
    print(error)
"""
        facts, refused = said(place, code).splitlines()
        emulated = said(place, TOKENS, repr({"boards": 2}))
    assert through == emulated and facts == "u55c True"
    assert "xrt:0): a u55c found, overlay lora_f_u280 is for a u280" in refused
