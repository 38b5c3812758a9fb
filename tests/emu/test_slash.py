"""V80 boards through SLASH: the transport against a mock vrtd that drives emulated boards."""

from __future__ import annotations

import dataclasses
import gzip
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.cluster_file import ring
from lora_host.errors import LinkError, OverlayError, PlacementError, TransportError
from lora_host.lab.inventory import inventory
from lora_host.overlay import load_overlay
from lora_host.vrtbin import SERVICE_MARK, differences, read_vrtbin
from lora_host.vrtd_mock.process import MockServer
from lora_sdk import Engine, SamplingParams
from tests.processes import ROOT, environment
from tests.slash import OVERLAY, build_card, run_client, start_client

PROMPT = "import os\n"
GREEDY = SamplingParams(max_tokens=64, ignore_eos=True)
TOKENS = """
import sys
from lora_sdk import Engine, SamplingParams
with Engine(devices=sys.argv[1:]) as engine:
    found = engine.generate('import os\\n', SamplingParams(max_tokens=64, ignore_eos=True))
    print(*found.token_ids)
"""
BY_HOST = TOKENS.replace("sys.argv[1:]", "sys.argv[1:], greedy='host', recovery='off'")
HOLD = """
import sys, time
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
cluster = Cluster.open(devices=sys.argv[1:], overlay=load_overlay('lora_f_v80'))
cluster.reserve(0, 32, 1 << 20)
print('open', flush=True)
time.sleep(60)
"""

# Programs twice and resets, with register accesses after each.
AGAIN = """
import sys
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
overlay = load_overlay('lora_f_v80')
for _ in range(2):
    with Cluster.open(devices=sys.argv[1:], overlay=overlay) as cluster:
        cluster.reserve(0, 32, 1 << 20)
        cluster.reserve(0, 3, 4096)
        for _ in range(2):
            cluster.write(0, 3, 0, bytes(range(256)) * 16)
            print(cluster.checksum(0, 3, 0, 4096))
            cluster.reset()
"""
# Keeps a mapping of the BAR over a design that another connection writes.
STALE = """
import mmap, socket, struct, sys
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
vrtd = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
vrtd.connect(__import__('os').environ['LORA_VRTD_SOCKET'])
def mapped():
    vrtd.send(struct.pack('<HHIIB', 5, 3, 1, 0, 0))
    _, (fd,), _, _ = socket.recv_fds(vrtd, 4096, 1)
    return mmap.mmap(fd, 1 << 26)
old = mapped()
print(old[0x100], flush=True)
with Cluster.open(devices=sys.argv[1:], overlay=load_overlay('lora_f_v80')):
    print(mapped()[0] & 4, flush=True)
    print(old[0x100], flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LORA_LOCK_FOLDER", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="module")
def mock_server() -> Iterator[MockServer]:
    with MockServer(2) as running:
        yield running


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_card(tmp_path_factory.mktemp("card"))


def connect(monkeypatch: pytest.MonkeyPatch, running: MockServer) -> None:
    monkeypatch.setenv("LORA_VRTD_SOCKET", str(running.socket))


def tokens_on(boards: int, overlay: str) -> list[int]:
    with Engine(boards=boards, overlay=overlay) as engine:
        return list(engine.generate(PROMPT, GREEDY).token_ids)  # type: ignore[union-attr]


def test_the_demo_models_tokens_are_those_of_emulated_boards(
    mock_server: MockServer, card: Path
) -> None:
    """With DMA that wraps, sources that must be writable and a done bit that clears. The host's
    loop: this card clears the bit on any read, so looks at GENERATE's tokens would lose it."""
    found = run_client(BY_HOST, mock_server, *mock_server.uris, LD_PRELOAD=str(card))
    expected = tokens_on(2, "lora_f_u280")
    assert [int(word) for word in found.split()] == expected == tokens_on(2, OVERLAY)
    assert len(expected) == 64


def test_the_card_model_catches_long_transfers_and_read_only_sources(
    mock_server: MockServer, card: Path
) -> None:
    """What the test above relies on can fail."""
    code = """
import errno, mmap, os
fd = os.memfd_create('v80-9-memory')
os.ftruncate(fd, 1 << 16)
os.pwrite(fd, bytes(4096) + bytes([7]) * 4096, 8192)
print(os.pread(fd, 1, 8192)[0], os.pread(fd, 1, 12288)[0])
try:
    os.pwrite(fd, mmap.mmap(-1, 4096, prot=mmap.PROT_READ), 0)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert run_client(code, mock_server, LD_PRELOAD=str(card)).split() == ["7", "0", "EFAULT"]


def test_registers_are_mapped_again_after_each_design_and_reset(mock_server: MockServer) -> None:
    found = run_client(AGAIN, mock_server, mock_server.uris[0]).split()
    assert found == [str(zlib.crc32(bytes(range(256)) * 16))] * 4


def test_a_mapping_older_than_the_design_is_fatal(mock_server: MockServer) -> None:
    """What the test above relies on can fail."""
    process = start_client(STALE, mock_server, mock_server.uris[0])
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGBUS and out.split() == ["0", "4"]


def test_memory_of_several_buffers_and_odd_ranges(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, mock_server)
    rng = np.random.default_rng(5)
    with Cluster.open(devices=mock_server.uris[:1], overlay=load_overlay(OVERLAY)) as cluster:
        for bank, size in ((3, 700 << 20), (32, 1300 << 20), (4, 8192)):
            cluster.reserve(0, bank, size)
            for offset in (1, 4095, size // 2 - 77, (512 << 20) - 5000, size - 9001):
                if not 0 <= offset <= size - 9001:
                    continue
                data = rng.integers(0, 256, 9001, np.uint8)
                cluster.write(0, bank, offset, data)
                assert bytes(cluster.read(0, bank, offset, 9001)) == data.tobytes()
        cluster.reserve(0, 5, 8192, offset=192)  # not at a page's begin
        data = rng.integers(0, 256, 8192, np.uint8)
        cluster.write(0, 5, 192, data)
        assert bytes(cluster.read(0, 5, 192, 8192)) == data.tobytes()
        crc = cluster.checksum(0, 5, 192 + 64, 4096)  # the board finds the same bytes there
        assert crc == zlib.crc32(data[64 : 64 + 4096].tobytes())


def test_a_bank_that_is_full_and_a_quota_that_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1, ["--buffers", "3"]) as running:
        connect(monkeypatch, running)
        with Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY)) as cluster:
            for bank in range(3):
                cluster.reserve(0, bank, 4096)
            with pytest.raises(PlacementError, match=r"HBM\[3\].*vrtd is out of it.*255") as caught:
                cluster.reserve(0, 3, 4096)
            assert caught.value.failure is not None and caught.value.failure.bank == 3


def test_no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORA_VRTD_SOCKET", str(tmp_path / "none.sock"))
    with pytest.raises(TransportError, match=r"none\.sock.*start vrtd"):
        Cluster.open(devices=["slash:0000:21:00.0"], overlay=load_overlay(OVERLAY))


def test_boards_are_listed_by_a_name_of_their_own(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """vrtd names them without a PCI function."""
    connect(monkeypatch, mock_server)
    assert [view.uri for view in inventory(tmp_path)] == list(mock_server.uris)


def test_an_unknown_board_and_a_board_named_twice(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, mock_server)
    overlay = load_overlay(OVERLAY)
    with pytest.raises(Exception, match=r"knows no board 0000:99:00\.0"):
        Cluster.open(devices=["slash:0000:99:00.0"], overlay=overlay)
    with pytest.raises(TransportError, match=r"this process \(\d+\) holds it already"):
        Cluster.open(devices=["slash:0000:21:00.0", "slash:21:00.0"], overlay=overlay)
    with pytest.raises(OverlayError, match=r"a v80 found, overlay lora_f_u280 is for a u280"):
        Cluster.open(devices=mock_server.uris, overlay=load_overlay("lora_f_u280"))


def test_a_design_that_did_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1) as running:
        connect(monkeypatch, running)
        running.command("lose 0 1")
        with pytest.raises(OverlayError, match=r"reports the design as written, but.*ABI 0"):
            Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY))


def test_a_gzipped_archive_is_loaded_and_a_damaged_one_named(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, mock_server)
    overlay = load_overlay(OVERLAY)
    assert overlay.container is not None
    packed = tmp_path / "packed.vrtbin"
    packed.write_bytes(gzip.compress(overlay.container.read_bytes()))
    mine = dataclasses.replace(overlay, container=packed)
    with Cluster.open(devices=mock_server.uris, overlay=mine) as cluster:
        assert cluster.infos[0].serial == 0x5100
    packed.write_bytes(packed.read_bytes()[:-100])
    with pytest.raises(OverlayError, match=r"packed\.vrtbin: damaged gzip"):
        Cluster.open(devices=mock_server.uris, overlay=mine)


def linked(folder: Path, members: dict[str, bytes]) -> Path:
    """An archive as SLASH's linker packs it: files of a build folder, gzip, times in fractions."""
    path = folder / "linked.vrtbin"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            file = folder / "build" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            archive.add(file, arcname=name)
    return path


def test_an_archive_of_the_linker_with_a_service_layer(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All its designs are loaded, the service layer first: it takes the kernels off the board."""
    connect(monkeypatch, mock_server)
    overlay = load_overlay(OVERLAY)
    assert overlay.container is not None
    design = read_vrtbin(overlay.container).design
    with tarfile.open(overlay.container) as archive:
        system_map = archive.extractfile("system_map.xml")
        assert system_map is not None
        text = system_map.read()
    project = "lora_f_of_a_name_so_long_that_it_needs_an_extended_header_in_the_archive"
    path = linked(tmp_path, {
        f"images/top_i_slash_slash_{project}_inst_0_partial.pdi": design,
        f"report_utilization_{project}.xml": b"<Report/>",
        "system_map.xml": text,
        f"images/top_i_service_layer_service_layer_{project}_inst_0_partial.pdi": SERVICE_MARK,
    })  # fmt: skip
    found = read_vrtbin(path)
    assert [name.split("_")[2] for name in found.designs] == ["service", "slash"]
    assert found.emulation and found.design == design and differences(found, overlay) == []
    mine = dataclasses.replace(overlay, container=path)
    with Cluster.open(devices=mock_server.uris, overlay=mine) as cluster:
        assert [info.serial for info in cluster.infos] == [0x5100, 0x5101]


@pytest.mark.slow
def test_links_of_a_server_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine its clock looks at the registers late: no reset becomes too short."""
    with MockServer(2) as running:
        connect(monkeypatch, running)
        done = threading.Event()

        def stall() -> None:
            while not done.wait(0.02):
                running.process.send_signal(signal.SIGSTOP)
                time.sleep(0.3)
                running.process.send_signal(signal.SIGCONT)

        with Cluster.open(devices=list(running.uris), overlay=load_overlay(OVERLAY)) as cluster:
            thread = threading.Thread(target=stall)
            thread.start()
            try:
                for _ in range(2):
                    cluster.links_up(ring(2))
            finally:
                done.set()
                thread.join()


def test_a_link_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(2) as running:
        connect(monkeypatch, running)
        running.command(f"fault 0 {abi.FAULT_LINK_DOWN} 1 0 0")
        overlay = load_overlay(OVERLAY)
        with Cluster.open(devices=running.uris, overlay=overlay) as cluster:
            began = time.monotonic()
            with pytest.raises(
                LinkError, match=r"board 0 \(slash:.*\) port 1 - board 1 \(slash:.*\) port 0"
            ):
                cluster.links_up(cluster.cables)
            assert time.monotonic() - began < 30  # reset and up take 4.1 s at most


def test_a_bar_shorter_than_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its registers would end the process with SIGBUS."""
    with MockServer(1) as running:
        connect(monkeypatch, running)
        running.command("short 0 4096")
        with pytest.raises(TransportError, match="BAR 0 of 67108864 B found in a file of 4096 B"):
            Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY))


def test_a_daemon_that_dies_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1) as running:
        connect(monkeypatch, running)
        with Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY)) as cluster:
            cluster.reserve(0, 32, 1 << 20)
            running.kill()
            began = time.monotonic()
            with pytest.raises(TransportError, match=r"vrtd at .* is gone"):
                cluster.checksum(0, 32, 0, 4096)
            assert time.monotonic() - began < 30


STUCK = """
import os, sys, time
from lora_sdk import Engine, SamplingParams
path, limit = sys.argv[1:3]
params = SamplingParams(max_tokens=8, ignore_eos=True)
with Engine(devices=sys.argv[3:], greedy='host') as engine:
    engine.generate('import os', params)
    open(path, 'w').close()
    began = time.monotonic()
    try:
        engine.generate('import os', params)
    except Exception as error:
        print(type(error).__name__, error, file=sys.stderr)
        print(f'{time.monotonic() - began:.1f}', f'has not ended within {limit} s' in str(error))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "limit"), [("STUCK_DMA", 10), ("STUCK_BAR", 5)])
def test_an_access_that_never_ends_costs_its_board_and_a_thread(
    mock_server: MockServer, card: Path, tmp_path: Path, variable: str, limit: int
) -> None:
    """The request has one error after the limit, and the program ends by itself."""
    stuck, uri = str(tmp_path / "stuck"), mock_server.uris[0]
    preloaded = {"LD_PRELOAD": str(card), variable: stuck}
    found = run_client(STUCK, mock_server, stuck, str(limit), uri, **preloaded)
    seconds, named = found.split()
    assert named == "True" and limit <= float(seconds) < 60


def test_a_board_is_held_by_one_process_and_a_killed_one_leaves_nothing(
    mock_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, mock_server)
    overlay = load_overlay(OVERLAY)
    holder: subprocess.Popen[str] = start_client(HOLD, mock_server, *mock_server.uris)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(TransportError, match=rf"held by process {holder.pid} \("):
            Cluster.open(devices=mock_server.uris, overlay=overlay)
    finally:
        holder.kill()
        holder.communicate()
    with Cluster.open(devices=mock_server.uris, overlay=overlay) as cluster:
        for bank in (0, 31):  # whole banks are free again
            cluster.reserve(0, bank, 1 << 30)


def test_a_hang_is_told_and_reset_brings_the_board_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1) as running:
        connect(monkeypatch, running)
        limits = {"checksum_us": 300_000}
        with Cluster.open(
            devices=running.uris, overlay=load_overlay(OVERLAY), timeouts=limits
        ) as cluster:
            cluster.reserve(0, 32, 1 << 20)
            running.command(f"fault 0 {abi.FAULT_DONE_LOST} 0 0 0")
            began = time.monotonic()
            with pytest.raises(TransportError, match="hangs"):
                cluster.checksum(0, 32, 0, 4096)
            assert time.monotonic() - began < 30
            running.command(f"fault 0 {abi.FAULT_NONE} 0 0 0")
            cluster.reset()
            assert cluster.checksum(0, 32, 0, 4096) >= 0


@pytest.mark.parametrize("generation", ["1.0.0", "development"])
def test_both_layouts_of_requests_are_spoken(
    generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MockServer(1, ["--generation", generation]) as running:
        connect(monkeypatch, running)
        with Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY)) as cluster:
            cluster.reserve(0, 3, 700 << 20)
            cluster.write(0, 3, (512 << 20) - 2, b"abcd")
            cluster.reset()
            cluster.write(0, 3, (512 << 20) - 2, b"efgh")
            assert bytes(cluster.read(0, 3, (512 << 20) - 2, 4)) == b"efgh"


@pytest.mark.parametrize("generation", ["1.0.0", "development"])
def test_a_design_that_vrtd_refuses_names_what_to_do(
    generation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overlay = load_overlay(OVERLAY)
    assert overlay.container is not None
    whole, facts = overlay.container.read_bytes(), b'"onchip_bytes": '
    assert facts in whole
    path = tmp_path / "other.vrtbin"
    path.write_bytes(whole.replace(facts, facts.replace(b"onchip", b"ONCHIP")))
    with MockServer(1, ["--generation", generation]) as running:
        connect(monkeypatch, running)
        with pytest.raises(
            TransportError,
            match=r"0000:21:00.*design\.pdi \(request 8: INTERNAL\).*journalctl.*lora reset",
        ):
            Cluster.open(devices=running.uris, overlay=dataclasses.replace(overlay, container=path))


def test_a_layout_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1, ["--generation", "unknown"]) as running:
        connect(monkeypatch, running)
        with pytest.raises(
            TransportError, match=r"request 1 with 172 B; 168 B \(1\.0\.0\) or 170 B"
        ):
            Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY))


def test_the_stand_in_ends_with_its_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(1, ["--exit-with-last-client"]) as running:
        connect(monkeypatch, running)
        Cluster.open(devices=running.uris, overlay=load_overlay(OVERLAY)).close()
        assert running.process.wait(5) == 0


@pytest.mark.slow
def test_boards_that_are_named_run_the_same_tests(mock_server: MockServer) -> None:
    """The fixture takes what --device names in place of the transports of its own."""
    tests = Path(__file__).with_name("test_host_memory.py")
    boards = [word for uri in mock_server.uris for word in ("--device", uri)]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), *boards],
        cwd=ROOT,
        env={**environment(), "LORA_VRTD_SOCKET": str(mock_server.socket)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0 and " passed" in found.stdout, found.stdout[-2000:]
