"""What a server is started with, checked before anything is opened."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lora_host.errors import RequestError
from lora_host.regular_file import read_regular
from lora_sdk.arguments.option import check_options, option

MAX_KEY_FILE = 1 << 16
MAX_SECONDS = 1e6
MIN_KEY = 16  # characters; shorter keys can be guessed over a network


@dataclass(frozen=True)
class Settings:
    """How a server listens and what it lets a client ask for; its flags are made of these fields.
    RequestError names one that is out of range.

    `keys`: SHA-256 digests of the accepted API keys, none for an open server."""

    names: Sequence[str] = option(
        (),
        help="the model's name for clients; further ones mean the same",
        unset="its folder's",
        flags=("--served-model-name",),
        metavar="NAME",
    )
    host: str = option(
        "127.0.0.1", help="address to listen on", flags=("--host",), metavar="ADDRESS"
    )
    port: int = option(
        8000, help="port to listen on; 0: a free one", flags=("--port",), low=0, high=65535
    )
    keys: Sequence[bytes] = option((), help="digests of the accepted API keys")
    uds: str | None = option(
        None, help="Unix socket to listen on in place of an address", flags=("--uds",),
        metavar="PATH",
    )  # fmt: skip
    max_queue: int = option(
        256, help="sequences that may wait; beyond them 429", flags=("--max-queue",), low=0
    )
    max_body: int = option(
        4 << 20,
        help="bytes of a request; beyond them 413",
        flags=("--max-body",),
        metavar="BYTES",
        low=1,
    )
    max_prompts: int = option(128, help="prompts of a request", flags=("--max-prompts",), low=1)
    body_timeout: float = option(
        10.0,
        help="seconds in which a request's headers must arrive and its answer be taken, else the "
        "connection is closed, and its body arrive, else 408",
        flags=("--body-timeout",),
        metavar="S",
        low=0,
        high=MAX_SECONDS,
        above=True,
    )
    adapter_root: str | None = option(
        None,
        help="folder below which clients may load adapters",
        unset="adapters are fixed",
        flags=("--adapter-root",),
        metavar="DIR",
    )
    request_timeout: float = option(
        600.0,
        help="seconds for a request; beyond them 408",
        flags=("--request-timeout",),
        metavar="S",
        low=0,
        high=MAX_SECONDS,
        above=True,
    )
    otlp_traces_endpoint: str | None = option(
        None,
        help="OpenTelemetry collector that receives a trace of each request, over HTTP",
        unset="no traces",
        flags=("--otlp-traces-endpoint",),
        metavar="URL",
    )
    chat_template: str | None = option(
        None, help="file with the chat template", unset="the model's", flags=("--chat-template",),
        metavar="FILE",
    )  # fmt: skip
    pooling: str = option(
        "last", help="final hidden states that an embedding is made of: the last token's or the "
        "mean of all", flags=("--pooling",), choices=("last", "mean"),
    )  # fmt: skip
    reasoning_parser: str = option(
        "auto", help="how thoughts are found in a text; auto: as the chat template has them",
        flags=("--reasoning-parser",),
        choices=("auto", "none", "qwen3", "deepseek_r1", "mistral", "gpt_oss"),
    )  # fmt: skip
    tool_call_parser: str = option(
        "auto", help="how calls of tools are found in a text; auto: as the chat template has them",
        flags=("--tool-call-parser",),
        choices=("auto", "hermes", "qwen3_coder", "llama3_json", "llama4_pythonic", "mistral",
                 "deepseek_v3", "glm45", "functiongemma", "gemma4", "gpt_oss"),
    )  # fmt: skip
    docs: bool = option(True, help="answer /docs and /openapi.json", flags=("--docs", "--no-docs"))
    strict: bool = option(
        False, help="refuse fields of requests that are not known", flags=("--strict",)
    )
    log_level: str = option(
        "info", help="least level of the log", flags=("--log-level",),
        choices=("debug", "info", "warning", "error"),
    )  # fmt: skip
    root_path: str = option(
        "", help="beginning of paths behind a reverse proxy, which may leave it out",
        flags=("--root-path",), metavar="PATH",
    )  # fmt: skip
    allowed_origins: Sequence[str] = option(
        (), help="origins of web pages that may ask; * for all", unset="none",
        flags=("--allowed-origins",), metavar="ORIGIN",
    )  # fmt: skip
    ssl_certfile: str | None = option(
        None, help="PEM file of the certificates for TLS", unset="no TLS",
        flags=("--ssl-certfile",), metavar="FILE",
    )  # fmt: skip
    ssl_keyfile: str | None = option(
        None, help="PEM file of the key, without a password", unset="in the file of certificates",
        flags=("--ssl-keyfile",), metavar="FILE",
    )  # fmt: skip
    drain_timeout: float = option(
        30.0,
        help="seconds in which running requests may end once the server is stopped",
        flags=("--drain-timeout",),
        metavar="S",
        low=0,
        high=MAX_SECONDS,
    )

    @property
    def name(self) -> str:
        """The model's first name."""
        return self.names[0] if self.names else ""

    def __post_init__(self) -> None:
        check_options(self)
        url = self.otlp_traces_endpoint
        if url is not None and not re.fullmatch(r"https?://[!-~]{1,2000}", url):
            raise RequestError(
                f"otlp_traces_endpoint is {url!r:.200}; expected a URL such as "
                "http://127.0.0.1:4318/v1/traces"
            )
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path):
            raise RequestError(
                f"root_path is {self.root_path!r:.200}; expected a path such as /llm"
            )
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise RequestError("ssl_keyfile needs ssl_certfile")
        for origin in self.allowed_origins:
            if origin != "*" and not re.fullmatch(r"https?://[\w.:\[\]-]+", origin):
                raise RequestError(
                    f"allowed_origins has {origin!r:.200}; expected * or an origin such as "
                    "https://example.org"
                )
        if self.adapter_root is not None and not Path(self.adapter_root).is_dir():
            raise RequestError(
                f"adapter_root is {self.adapter_root!r:.200}; expected a folder of adapters"
            )


def check_exposure(host: str, keys: Sequence[bytes], insecure: bool) -> None:
    """RequestError where a server without a key would listen beyond this machine."""
    if keys or insecure or _is_loopback(host):
        return
    raise RequestError(
        f"--host {host} is reached from other machines and no key is set; give --api-key-file, or "
        "--insecure to serve everybody"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Digests of the keys of a file. RequestError as for `key_lines`."""
    return tuple(map(digest, key_lines(path)))


def key_lines(path: Path) -> list[str]:
    """The keys of a file, one key a line, at least one; RequestError names a bad line."""
    try:
        lines = read_regular(path, MAX_KEY_FILE).decode("ascii").splitlines()
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; expected one API key a line") from None
    except UnicodeDecodeError:
        raise RequestError(f"{path} is not ASCII; expected one API key a line") from None
    keys = []
    for number, line in enumerate(lines, 1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        keys.append(check_key(key, f"{path}, line {number}"))
    if not keys:
        raise RequestError(f"{path} holds no key; expected one API key a line")
    return keys


def check_key(key: str, where: str) -> str:
    """`key`; RequestError, which says where it was found, for one that is no key."""
    if len(key) < MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise RequestError(
            f"{where}: expected a key of at least {MIN_KEY} characters without spaces"
        )
    return key


def digest(key: str) -> bytes:
    """What is kept of a key, and compared: digests have one length."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
