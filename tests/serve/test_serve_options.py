"""Options that people know of other servers, and where they may stand."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import json
import socket
import ssl
import stat
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lora_host.errors import RequestError
from lora_sdk import Engine, demo_model_path
from lora_sdk.cli.main import lora
from lora_sdk.cli.serve_command import spread
from lora_sdk.serve import server as server_module
from lora_sdk.serve.settings import Settings, digest
from tests.served import Served, eventually, served

KEY = "k" * 32


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """(settings, the engine's arguments, the adapters) of a command line."""

    def parse(*line: str) -> tuple[Settings, dict[str, Any], list[Any]]:
        found: list[Any] = []
        monkeypatch.setattr(server_module, "run_server", lambda *given: found.extend(given))
        lora.main(["serve", *line], standalone_mode=False)
        settings, opened = found
        arguments, _drafts, adapters = opened.args
        return settings, dict(arguments), [(one.name, str(one.path)) for one in adapters]

    return parse


def test_vllms_options_mean_the_same(parsed: Any) -> None:
    model = str(demo_model_path())
    settings, arguments, _ = parsed(
        model, "--max-model-len", "256", "--dtype", "half", "--max-num-seqs", "3", "-tp", "4",
        "--pipeline-parallel-size", "2", "--kv-cache-dtype", "int8", "--enable-lora",
        "--served-model-name", "a", "b", "--api-key", KEY, KEY + "2",
        "--allowed-origins", '["https://a.example", "*"]', "--root-path", "/llm", "--port", "1",
    )  # fmt: skip
    assert arguments["model"] == model and arguments["context"] == 256
    assert arguments["max_sequences"] == 3 and arguments["kv"] == "int8"
    assert (arguments["boards"], arguments["stages"]) == (8, 2)
    assert (settings.name, tuple(settings.names)) == ("a", ("a", "b"))
    assert settings.keys == (digest(KEY), digest(KEY + "2")) and settings.port == 1
    assert settings.allowed_origins == ["https://a.example", "*"] and settings.root_path == "/llm"


@pytest.mark.parametrize("flag", ["--lora-modules", "--adapter"])
def test_adapters_as_vllm_names_them(parsed: Any, flag: str) -> None:
    path = demo_model_path().parent / "demo_adapter_lora"
    second = json.dumps({"name": "b", "path": str(path)})
    several = [second] if flag == "--lora-modules" else [flag, second]
    found = parsed(flag, f"a={path}", *several)[2]
    assert found == [("a", str(path)), ("b", str(path))]


@pytest.mark.parametrize(
    ("line", "boards"),
    [
        (["-tp", "2"], 2),
        (["-pp", "2"], 2),
        (["-tp", "2", "--stages", "2"], 4),
        (["-pp", "2", "--boards", "8"], 8),
    ],
)
def test_boards_by_stages(parsed: Any, line: list[str], boards: int) -> None:
    assert parsed(*line)[1]["boards"] == boards


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["a", "-m", "b"], "named twice"),
        (["-tp", "2", "--boards", "4"], "--boards is 4; expected 2"),
        (["-pp", "2", "--stages", "4"], "differ"),
        (["--api-key", "short"], "at least 16"),
        (["--allowed-origins", "example.org"], "https://example.org"),
        (["--allowed-origins", "[1]"], "list of texts"),
        (["--root-path", "llm"], "such as /llm"),
        (["--ssl-keyfile", "x"], "needs ssl_certfile"),
        (["--lora-modules", "{}"], "a name and a path"),
        (["--host", "0.0.0.0"], "no key is set"),
    ],
)
def test_options_that_do_not_fit(parsed: Any, line: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parsed(*line)


def test_other_types_are_refused(parsed: Any) -> None:
    with pytest.raises(Exception, match="bfloat16"):
        parsed("--dtype", "bfloat16")


def test_a_flag_of_several_values_ends_at_the_next() -> None:
    assert spread(["--api-key", "a", "b", "--port", "1", "m"]) == [
        "--api-key", "a", "--api-key", "b", "--port", "1", "m"
    ]  # fmt: skip


def test_a_file_of_options_and_the_environment(
    parsed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "max-model-len: 256\nserved_model_name: [a, b]\nport: 5\nmax-queue: 7\n"
        "prefix-cache: false\napi-key: " + KEY + "\nmax-body: 1000\nstrict: true\n"
    )
    monkeypatch.setenv("LORA_PORT", "6")
    monkeypatch.setenv("LORA_MAX_QUEUE", "8")
    monkeypatch.setenv("LORA_MAX_NUM_SEQS", "2")
    monkeypatch.setenv("LORA_ALLOWED_ORIGINS", "https://a.example https://b.example")
    settings, arguments, _ = parsed("--config", str(file), "--max-queue", "9")
    assert arguments["context"] == 256 and arguments["max_sequences"] == 2
    assert arguments["prefix_cache"] is False and settings.strict
    assert tuple(settings.names) == ("a", "b") and settings.keys == (digest(KEY),)
    assert settings.allowed_origins == ["https://a.example", "https://b.example"]
    # The file, then the environment, then the command line.
    assert (settings.max_body, settings.port, settings.max_queue) == (1000, 6, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "did you mean 'port'"),
        ("[1]", "mapping of options"),
        ("port: [1, 2]", "expected one"),
        ("port: {a: 1}", "a text or a number"),
        ("strict: yes", "true or false"),
        ("config: x", "no option"),
        ("port: nine", "port is 'nine'"),
    ],
)
def test_files_of_options_that_do_not_fit(
    parsed: Any, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(Exception, match=message):
        parsed("--config", str(file))


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        lambda progress: Engine(progress=progress), names=("demo", "alias"), root_path="/llm",
        allowed_origins=["https://a.example"], keys=(digest(KEY),),
    ) as running:  # fmt: skip
        yield running


def test_every_name_means_the_model(reached: Served) -> None:
    client = reached.client(KEY)
    assert [one.id for one in client.models.list()] == ["demo", "alias"]
    for name in ("demo", "alias"):
        assert client.completions.create(model=name, prompt="a", max_tokens=1).model == name


def test_paths_below_a_root(reached: Served) -> None:
    for path in ("/llm/health", "/health", "/llm/"):  # with the beginning left out, or not
        assert reached.get(path).status == 200
    assert reached.get("/llm/v1/models").status == 401
    assert reached.get("/llm/v1/models", authorization=f"Bearer {KEY}").status == 200
    assert reached.get("/llmv1/models", authorization=f"Bearer {KEY}").status == 404


def test_pages_of_an_origin_may_ask(reached: Served) -> None:
    def preflight(origin: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", reached.port, timeout=20)
        connection.request(
            "OPTIONS", "/v1/completions", headers={
                "origin": origin, "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type"},
        )  # fmt: skip
        return connection.getresponse()

    allowed = preflight("https://a.example")
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-origin" not in preflight("https://b.example").headers
    got = reached.get("/v1/models", authorization=f"Bearer {KEY}", origin="https://a.example")
    assert got.headers["access-control-allow-origin"] == "https://a.example"


def test_no_page_may_ask_by_default(server: Served) -> None:
    got = server.get("/v1/models", origin="https://a.example")
    assert got.status == 200 and "access-control-allow-origin" not in got.headers


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:  # of a server that is gone
        left.bind(str(path))
    with served_at(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        connection = UnixConnection(path)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        with pytest.raises(RequestError, match="take another --uds"):
            server_module.listen(Settings(names=("b",), uds=str(path)))
    path.unlink()
    path.write_text("a file")
    with pytest.raises(RequestError, match="take another --uds"):
        server_module.listen(Settings(names=("b",), uds=str(path)))
    assert path.read_text() == "a file"


def served_at(path: Path) -> Any:
    return served(lambda progress: Engine(progress=progress), uds=str(path))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        ).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )  # fmt: skip
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.slow
def test_tls(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MOST_CONNECTIONS", 16)
    cert, key = map(str, certificate)
    trusted = ssl.create_default_context(cafile=cert)
    with served(
        lambda progress: Engine(progress=progress), ssl_certfile=cert, ssl_keyfile=key,
        body_timeout=0.5,
    ) as running:  # fmt: skip
        url = f"https://127.0.0.1:{running.port}"

        def ask() -> None:
            body = json.dumps({"prompt": "a" * 70_000, "max_tokens": 1}).encode()
            request = urllib.request.Request(
                f"{url}/tokenize", body, {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, context=trusted, timeout=20) as got:
                assert json.load(got)["count"] > 1000

        ask()
        connections = running.server._uvicorn.server_state.connections
        silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(40)]
        ask()  # those that do not even begin with TLS are counted, and give way
        assert len(connections) <= 16
        assert eventually(lambda: not connections, 5)  # and end
        for one in silent:
            one.close()
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"200" not in plain.recv(1000)
        time.sleep(0.05)
        ask()


def test_files_of_tls_that_do_not_fit(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = map(str, certificate)
    for files in ((key, key), (cert, cert), (cert, None), (str(tmp_path / "none"), key)):
        settings = Settings(names=("a",), ssl_certfile=files[0], ssl_keyfile=files[1])
        with pytest.raises(RequestError, match="PEM"):
            server_module._tls(settings)
