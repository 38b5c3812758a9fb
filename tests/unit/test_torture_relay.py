"""The network of fault campaigns: bytes pass, are held, or their connections end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lora_lab.torture.host.relay import Relay, tcp_relay, unix_relay

SOON, WAIT = 0.2, 20.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Sends back what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listen:
        threading.Thread(target=_echo, args=(listen,), daemon=True).start()
        yield listen
        listen.shutdown(socket.SHUT_RDWR)


def _echo(listen: socket.socket) -> None:
    with suppress(OSError):
        while True:
            made, _ = listen.accept()
            threading.Thread(target=_answer, args=(made,), daemon=True).start()


def _answer(made: socket.socket) -> None:
    with made, suppress(OSError):
        while data := made.recv(4096):
            made.sendall(data)


@pytest.fixture
def relay(server: socket.socket) -> Iterator[tuple[Relay, int]]:
    made = tcp_relay("127.0.0.1", server.getsockname()[1])
    yield made
    made[0].close()


def client(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), WAIT)
    made.settimeout(WAIT)
    return made


def echoed(made: socket.socket, data: bytes) -> bytes:
    made.sendall(data)
    return made.recv(4096)


def test_bytes_pass_and_an_end_is_told(relay: tuple[Relay, int]) -> None:
    with client(relay[1]) as made:
        assert echoed(made, b"one") == b"one" and echoed(made, b"two") == b"two"
        made.shutdown(socket.SHUT_WR)
        assert made.recv(1) == b""


def test_connections_are_cut_and_made_again(relay: tuple[Relay, int]) -> None:
    with client(relay[1]) as made:
        assert echoed(made, b"one") == b"one"
        relay[0].cut()
        assert made.recv(1) == b""
    with client(relay[1]) as made:
        assert echoed(made, b"two") == b"two"


def test_a_parted_network_refuses_until_it_is_healed(relay: tuple[Relay, int]) -> None:
    relay[0].part()
    with pytest.raises(ConnectionRefusedError):
        client(relay[1])
    relay[0].heal()
    with client(relay[1]) as made:
        assert echoed(made, b"again") == b"again"


def test_a_silent_network_loses_nothing(relay: tuple[Relay, int]) -> None:
    with client(relay[1]) as made:
        assert echoed(made, b"one") == b"one"
        relay[0].silence()
        made.settimeout(SOON)
        with pytest.raises(TimeoutError):
            echoed(made, b"two")
        relay[0].heal()
        made.settimeout(WAIT)
        assert made.recv(4096) == b"two"


def test_bytes_are_held_once_so_many_have_come(relay: tuple[Relay, int]) -> None:
    with client(relay[1]) as made, relay[0].held_after(5) as reached:
        assert echoed(made, b"1234") == b"1234"
        assert not reached(0)
        made.settimeout(SOON)
        with pytest.raises(TimeoutError):
            echoed(made, b"5")
        assert reached(WAIT)


def test_held_bytes_pass_afterwards(relay: tuple[Relay, int]) -> None:
    with client(relay[1]) as made:
        with relay[0].held_after(1) as reached:
            made.sendall(b"1")
            assert reached(WAIT)
        assert made.recv(4096) == b"1" and echoed(made, b"2") == b"2"


def test_a_unix_socket_is_one_end(tmp_path: Path, server: socket.socket) -> None:
    far = tmp_path / "far"
    with socket.socket(socket.AF_UNIX) as listen:
        listen.bind(str(far))
        listen.listen(4)
        threading.Thread(target=_echo, args=(listen,), daemon=True).start()
        relay = unix_relay(str(tmp_path / "near"), str(far))
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(tmp_path / "near"))
            assert echoed(made, b"one") == b"one"
        relay.part()
        relay.heal()
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(tmp_path / "near"))
            assert echoed(made, b"two") == b"two"
        relay.close()
        listen.shutdown(socket.SHUT_RDWR)
