"""`lora boardd status`: addresses that are none, keys that cannot be used, ends without answer."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lora_host.boardd.keys import write_keys
from lora_host.boardd.status import HEADER, MAGIC, daemon_status
from lora_host.device_uri import split_address
from lora_host.errors import RequestError, TransportError
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command

EXPECTED = "tcp:HOST:PORT or unix:PATH expected"
HOST = "127.0.0.1"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("cryptography")
    write_keys(tmp_path / "keys", [HOST, "lab1"])
    monkeypatch.setenv("LORA_BOARDD_KEYS", str(tmp_path / "keys" / "client"))
    return tmp_path / "keys"


@contextmanager
def listening(keys: Path | None) -> Iterator[str]:
    """The address of an end that shows the certificate of `keys` and reads; None: no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if keys is not None:
        context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    with socket.create_server((HOST, 0)) as listen:

        def serve() -> None:
            made, _ = listen.accept()
            try:
                if keys is None:
                    made.sendall(b"220 mail ready\r\n" * 9)
                else:
                    made = context.wrap_socket(made, server_side=True)
                made.recv(1)
            except OSError:
                pass
            made.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp:{HOST}:{listen.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "address",
    ["emu:u280", "xrt:0", "foo", "", "tcp:x", "tcp:", "tcp:x:y", "tcp:x:7410/emu:u280", "unix:"],
)
def test_what_is_no_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lora, "lora", ["boardd", "status", address]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"lora: error: address {address!r}: {EXPECTED}, as tcp:lab2")


@pytest.mark.parametrize(
    ("address", "says"),
    [("tcp:x:0", "port 0 found"), (f"unix:/{'a' * 107}", "at most 107 bytes")],
)
def test_an_address_out_of_range_is_named_as_it_was_given(address: str, says: str) -> None:
    with pytest.raises(RequestError, match=says) as raised:
        split_address(address)
    assert str(raised.value).startswith(f"address {address!r}: ")


@pytest.mark.parametrize("address", ["tcp:lab2:7410", "tcp:[fd00::2]:7410", "unix:/run/a.sock"])
def test_an_address_is_where_uris_of_boards_begin(address: str) -> None:
    assert ":".join(split_address(address)) == ":".join(split_address(f"{address}/")) == address


@pytest.mark.parametrize("host", [".", "a..b", f"{'a' * 70}.de", ".a"])
def test_a_name_that_no_host_has_is_refused(keys: Path, host: str) -> None:
    with pytest.raises((RequestError, TransportError), match=r"name or address expected|answers"):
        daemon_status(f"tcp:{host}:1")


def test_who_does_not_answer_is_to_be_started(keys: Path, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as listen:
        port = listen.getsockname()[1]
    for address in (f"tcp:{HOST}:{port}", f"unix:{tmp_path}/no.sock"):
        with pytest.raises(TransportError, match=r"no board daemon answers there: .*; start it"):
            daemon_status(address)


@pytest.mark.parametrize("shown", ["keys/lab1", f"others/{HOST}"])
def test_a_refused_certificate_is_told(keys: Path, tmp_path: Path, shown: str) -> None:
    write_keys(tmp_path / "others", [HOST])
    with (
        listening(tmp_path / shown) as address,
        pytest.raises(TransportError, match="its certificate is refused: ") as raised,
    ):
        daemon_status(address)
    why = str(raised.value).partition("refused: ")[2]
    assert ("mismatch" in why) == (shown == "keys/lab1") and "start it" not in why
    assert why.endswith(f"by the CA of {keys / 'client' / 'ca.pem'} expected")


def test_an_end_without_tls_is_told(keys: Path) -> None:
    with (
        listening(None) as address,
        pytest.raises(TransportError, match=r"TLS is refused: .*is it"),
    ):
        daemon_status(address)


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem"])
def test_keys_that_cannot_be_used_are_named(keys: Path, name: str) -> None:
    path = keys / "client" / name

    def refused() -> str:
        with pytest.raises(TransportError, match="make keys with 'lora boardd init'") as raised:
            daemon_status(f"tcp:{HOST}:1")
        return str(raised.value)

    path.write_text("no key")
    assert str(path) in refused()
    path.unlink()
    assert refused().startswith(f"{path}: No such file")
    path.mkdir()
    assert refused().startswith(f"{path}: Is a directory")


def test_a_key_of_another_certificate_is_told(keys: Path) -> None:
    shutil.copy(keys / HOST / "key.pem", keys / "client" / "key.pem")
    with pytest.raises(TransportError, match="mismatch; make keys"):
        daemon_status(f"tcp:{HOST}:1")


def test_an_answer_that_is_too_short_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as listen:
        listen.bind(str(path))
        listen.listen()

        def serve() -> None:
            made, _ = listen.accept()
            with made:
                made.sendall(HEADER.pack(MAGIC, 0x8011, 0, 4, 1) + bytes(4))
                made.recv(1 << 10)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TransportError, match="an answer of 4 B"):
            daemon_status(f"unix:{path}")
        thread.join()
