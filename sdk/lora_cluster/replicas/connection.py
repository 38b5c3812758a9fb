"""The program's connection to a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lora_host.errors import LoraError, RequestError
from lora_host.naming import install

TCP_SECONDS = 5.0
NAMESPACE = "lora"


def require_ray(command: str) -> Any:
    """The package `ray`. RequestError names the extra that has it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise RequestError(f"{command} needs the package {error.name}; {install('ray')}") from None
    return ray


def use_token(file: Path | None) -> None:
    """Authenticate with the token of a file, before `ray` is imported. None: as the environment
    says (RAY_AUTH_MODE)."""
    if file is not None:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)


def use_loopback(address: str) -> None:
    """Keep Ray on loopback if the cluster is there; otherwise it takes another address."""
    if address.rpartition(":")[0] in ("127.0.0.1", "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


@contextmanager
def connected(address: str, command: str, token: Path | None = None) -> Iterator[None]:
    """A connection to the cluster at HOST:PORT. RequestError: bad address; LoraError: nobody
    answers there, or refuses the token."""
    _check_listening(address)
    use_token(token)
    use_loopback(address)
    ray = require_ray(command)
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise LoraError(
            f"no connection to the Ray cluster at {address}: {error}; is it of Ray "
            f"{ray.__version__}, and the token that of its nodes?"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_listening(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise RequestError(f"the Ray address is {address!r:.100}; expected HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TCP_SECONDS).close()
    except OSError as error:
        raise LoraError(
            f"no Ray cluster at {address}: {error.strerror or error}; start one with lora ray "
            "start, or see lora ray status"
        ) from None
