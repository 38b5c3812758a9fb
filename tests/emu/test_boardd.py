"""The board daemon: who may connect, who holds a board, and what becomes of it when an end goes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.boardd.keys import write_keys
from lora_host.boardd.status import ROLE_STATUS, daemon_status, greeting
from lora_host.cluster import Cluster
from lora_host.errors import LoraError, RequestError, TransportError
from lora_host.overlay import load_overlay
from lora_host.vrtd_mock.process import MockServer
from tests.daemons import DaemonProcess, ThreadedDaemon
from tests.processes import environment
from tests.transports import SHORT, SPEED

END_S = 30.0
HOLDER = """
import sys, time
from lora_host.cluster import Cluster
from lora_host.overlay import load_overlay
kept = Cluster.open(devices=sys.argv[1:], overlay=load_overlay("lora_f_u280"))
print("ready", flush=True)
time.sleep(60)
"""


def open_cluster(*uris: str) -> Cluster:
    return Cluster.open(devices=uris, overlay=load_overlay("lora_f_u280"), timeouts=SHORT)


def wait_until_free(address: str) -> None:
    end = time.monotonic() + END_S
    while any(board.holder for board in daemon_status(address)):
        assert time.monotonic() < end, "a board is still reserved"
        time.sleep(0.02)


@pytest.fixture
def daemon() -> Iterator[ThreadedDaemon]:
    with ThreadedDaemon(("emu:u280", "emu:u280"), speed=SPEED) as opened:
        yield opened


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("cryptography")
    write_keys(tmp_path / "keys", ["127.0.0.1"])
    monkeypatch.setenv("LORA_BOARDD_KEYS", str(tmp_path / "keys" / "client"))
    return tmp_path / "keys"


def serve_tcp(keys: Path) -> ThreadedDaemon:
    return ThreadedDaemon(
        ("emu:u280",), listen=("127.0.0.1", 0), keys=keys / "127.0.0.1", speed=SPEED
    )


def test_a_second_client_is_told_who_holds_the_board(daemon: ThreadedDaemon) -> None:
    with open_cluster(daemon.uris[0]) as cluster:
        with pytest.raises(
            TransportError, match=r"held by process .* end it or take another board"
        ):
            open_cluster(daemon.uris[0])
        assert [bool(board.holder) for board in daemon_status(daemon.address)] == [True, False]
        assert cluster.register(0, 0, abi.REG_IDENTITY_ABI) == abi.ABI_NUMBER
    wait_until_free(daemon.address)
    open_cluster(daemon.uris[0]).close()
    assert [board.sessions for board in daemon_status(daemon.address)] == [2, 0]


def test_a_board_that_is_not_there_is_named(daemon: ThreadedDaemon) -> None:
    with pytest.raises(RequestError, match=r"no board emu:u280/7.*lora boardd status"):
        open_cluster(f"{daemon.address}/emu:u280/7")
    with pytest.raises(TransportError, match="no board daemon answers there"):
        open_cluster("unix:/nowhere/boardd.sock/emu:u280")


def test_a_killed_client_leaves_no_board_reserved(daemon: ThreadedDaemon) -> None:
    command = [sys.executable, "-c", HOLDER, *daemon.uris]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as client:
        assert client.stdout is not None and client.stdout.readline() == b"ready\n"
        assert all(board.holder for board in daemon_status(daemon.address))
        client.kill()
    open_cluster(*daemon.uris).close()  # waits until the daemon has dealt with the end
    wait_until_free(daemon.address)


def test_a_killed_daemon_is_an_error_at_once_and_a_new_one_takes_the_boards_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder of containers goes as well."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    place = ("--socket", str(tmp_path / "boardd.sock"), "--speed", str(SPEED))
    with DaemonProcess(*place) as first:
        cluster = open_cluster(*first.uris)
        first.process.kill()
        first.process.wait()
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(TransportError, match="board daemon is gone"):
                cluster.register(0, 0, abi.REG_IDENTITY_ABI)
        with pytest.raises(TransportError, match="no board daemon answers there"):
            cluster.reset()
        assert time.monotonic() - began < END_S
    with cluster, DaemonProcess(*place):
        cluster.reset()
        cluster.reserve(0, 0, 4096)
        cluster.write(0, 0, 64, b"again")
        assert cluster.read(0, 0, 64, 5) == b"again"
        assert len(list(tmp_path.glob("lora-boardd-*"))) == 1


def test_a_write_that_fails_is_told_by_the_next_call(daemon: ThreadedDaemon) -> None:
    with open_cluster(daemon.uris[0]) as cluster:
        cluster.reserve(0, 0, 4096)
        daemon.emulated.fault(0, abi.FAULT_WRITE_FAILS, 0)
        cluster.write(0, 0, 0, b"lost")
        with pytest.raises(TransportError, match="a transfer to its memory ended in an error"):
            cluster.read(0, 0, 0, 4)
        assert len(cluster.read(0, 0, 0, 4)) == 4


def test_large_transfers_go_both_ways(daemon: ThreadedDaemon) -> None:
    size = (9 << 20) + 12345
    data = bytes(range(251)) * (size // 251 + 1)
    with open_cluster(daemon.uris[0]) as cluster:
        cluster.reserve(0, 0, 16 << 20)
        cluster.write(0, 0, 64, data[:size])
        assert cluster.read(0, 0, 64, size) == data[:size]


def test_tcp_asks_for_certificate_and_token(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_tcp(keys) as served:
        address = served.daemon.addresses[1]
        uri = f"{address}/emu:u280"
        with open_cluster(uri) as cluster:
            assert cluster.register(0, 0, abi.REG_IDENTITY_ABI) == abi.ABI_NUMBER
        assert [board.name for board in daemon_status(address)] == ["emu:u280/0"]
        for name, text in (("token", "x" * 64), ("token", "")):
            spoilt = keys / f"spoilt{len(text)}"
            shutil.copytree(keys / "client", spoilt)
            (spoilt / name).write_text(text)
            monkeypatch.setenv("LORA_BOARDD_KEYS", str(spoilt))
            with pytest.raises(TransportError, match="token"):
                open_cluster(uri)
        write_keys(keys / "others", ["127.0.0.1"])
        monkeypatch.setenv("LORA_BOARDD_KEYS", str(keys / "others" / "client"))
        with pytest.raises(TransportError, match="certificate is refused"):
            open_cluster(uri)
        wait_until_free(served.address)


def test_a_certificate_of_another_ca_gets_no_answer(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client trusts the daemon, and the daemon not the client."""
    write_keys(keys / "others", ["127.0.0.1"])
    for name in ("cert.pem", "key.pem"):
        shutil.copy(keys / "others" / "client" / name, keys / "client" / name)
    with serve_tcp(keys) as served, pytest.raises(TransportError, match=r"tcp:127\.0\.0\.1"):
        open_cluster(f"{served.daemon.addresses[1]}/emu:u280")


def test_a_host_with_another_name_is_refused(keys: Path) -> None:
    with serve_tcp(keys) as served:
        port = served.daemon.addresses[1].rpartition(":")[2]
        with pytest.raises(TransportError, match=r"certificate is refused|its name is not known"):
            open_cluster(f"tcp:localhost:{port}/emu:u280")


def test_plain_tcp_is_refused(keys: Path) -> None:
    token = (keys / "client" / "token").read_text().strip()
    with serve_tcp(keys) as served:
        host, port = served.daemon.addresses[1].removeprefix("tcp:").split(":")
        with socket.create_connection((host, int(port)), END_S) as plain:
            plain.sendall(greeting(ROLE_STATUS, token))
            got = b""
            with contextlib.suppress(ConnectionResetError):
                while more := plain.recv(4096):
                    got += more
        assert b"emu:u280" not in got  # at most an alert of TLS
    with pytest.raises(RequestError, match="--listen without --keys"):
        ThreadedDaemon(("emu:u280",), listen=("127.0.0.1", 0))


def test_versions_are_compared(daemon: ThreadedDaemon) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(END_S)
        connection.connect(str(daemon.socket))
        connection.sendall(greeting(ROLE_STATUS, version=7))
        assert b"version 7 with ABI %d found" % abi.ABI_NUMBER in connection.recv(4096)


def test_a_daemon_in_the_way_is_named(daemon: ThreadedDaemon, tmp_path: Path) -> None:
    from lora_host.boardd.daemon import Daemon
    from lora_host.boardd.settings import Settings

    with pytest.raises(TransportError, match="a daemon serves there already"):
        Daemon(Settings(("emu:u280",), socket=daemon.socket))
    (tmp_path / "file").write_text("kept")
    with pytest.raises(LoraError, match="no socket, and in the way"):
        Daemon(Settings(("emu:u280",), socket=tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "kept"


def test_a_real_board_must_answer_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the daemon's host lacks later is told as the daemon's."""
    monkeypatch.setenv("LORA_VRTD_SOCKET", "/nowhere/vrtd.sock")
    board = "slash:0000:21:00.0"
    with pytest.raises(TransportError, match=f"--board {board} does not answer here: .*nowhere"):
        ThreadedDaemon([board])
    with MockServer(1) as server:
        monkeypatch.setenv("LORA_VRTD_SOCKET", str(server.socket))
        with ThreadedDaemon(server.uris) as daemon:
            overlay = load_overlay("lora_f_v80")
            Cluster.open(1, devices=daemon.uris, overlay=overlay).close()
            assert overlay.container is not None
            other = tmp_path / "other.vrtbin"
            damaged = overlay.container.read_bytes().replace(b'"onchip_bytes"', b'"ONCHIP_bytes"')
            other.write_bytes(damaged)
            with pytest.raises(TransportError) as caught:
                Cluster.open(1, devices=daemon.uris, overlay=replace(overlay, container=other))
            said = str(caught.value)
            assert "): on the daemon's host: " in said
            server.kill()
            with pytest.raises(TransportError) as caught:
                Cluster.open(1, devices=daemon.uris, overlay=overlay)
            said = str(caught.value)
            assert said.startswith("on the daemon's host: ")
