"""The server as a process: it listens, loads the model meanwhile, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from lora_host.errors import RequestError
from lora_sdk.serve.app import make_app
from lora_sdk.serve.guard import LOG
from lora_sdk.serve.http_protocol import ConnectionLimits, end_unread, http_protocol
from lora_sdk.serve.service import LoadingStopped, OpenBackend, Service
from lora_sdk.serve.settings import Settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 1024
_TAKEN = 16  # connections from the backlog in one turn of the event loop
_MOST_CONNECTIONS = 1024
_NO_PASSWORD = ""  # asking for one would wait on the terminal
_RESERVE = 128  # descriptors that connections leave to the boards, files and threads


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: they would end the process by the signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio takes as many connections in one turn as its backlog has; the kernel keeps
        more."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            end_unread(self.server_state.connections)
        return await super().on_tick(counter)


class _LoopErrors:
    """What asyncio reports; that no connection can be taken, once a second."""

    def __init__(self) -> None:
        self._last = -1.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket.accept()" not in context["message"]:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            LOG.error("connections cannot be taken: %s", context.get("exception"))


def _most_connections() -> int:
    """As many as the process may have descriptors for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(16, min(_MOST_CONNECTIONS, limit - _RESERVE))


def listen(settings: Settings) -> socket.socket:
    """The socket that the server listens on; RequestError where the address cannot be had."""
    if settings.uds is not None:
        return _listen_on_path(settings.uds)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise RequestError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; free it or "
            "take another --port"
        ) from None
    return listener


def _listen_on_path(path: str) -> socket.socket:
    """A Unix socket for this user and group. One that nobody serves any more is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _is_served(path):
            os.unlink(path)
    except OSError:
        pass
    mask = os.umask(0o117)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise RequestError(
            f"cannot listen on {path!r:.200}: {error.strerror or error}; take another --uds"
        ) from None
    finally:
        os.umask(mask)
    return listener


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(path) == 0


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """What TLS is spoken with, None for none. RequestError names the file."""
    if settings.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, _NO_PASSWORD)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        names = " and ".join(filter(None, (settings.ssl_certfile, settings.ssl_keyfile)))
        raise RequestError(
            f"{names:.300}: {getattr(error, 'strerror', None) or error}; expected a "
            "certificate and its key in PEM form"
        ) from None
    return context


class Server:
    """One service behind one listening socket."""

    def __init__(self, settings: Settings, open_backend: OpenBackend) -> None:
        self.service = Service(settings)
        self._open_backend = open_backend
        self._stop: asyncio.Event | None = None
        self._again = False
        limits = ConnectionLimits(settings.body_timeout, _most_connections())
        config = uvicorn.Config(
            make_app(self.service),
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            http=http_protocol(limits, _tls(settings)),
            backlog=_TAKEN,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        self._uvicorn = _Uvicorn(config)

    async def run(self, listener: socket.socket) -> None:
        """Serve until `stop` and drain. Raises what loading the model raises."""
        self._stop = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(_LoopErrors())
        serving = asyncio.ensure_future(self._uvicorn.serve([listener]))
        loading = asyncio.ensure_future(self.service.load(self._open_backend))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({loading, stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and loading.exception() is None:
                LOG.info("ready")
                await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await self.service.stop()
            self._uvicorn.should_exit = True
            try:
                await serving
                with suppress(LoadingStopped):
                    await loading
            finally:
                await self.service.close()
                LOG.info("stopped")

    def stop(self) -> None:
        """Begin to drain; a second call cancels what still runs. From the loop's thread."""
        if self._stop is not None and self._stop.is_set():
            self.service.attendants.cancel_all()
        elif self._stop is not None:
            LOG.info("draining")
            self._stop.set()


def run_server(settings: Settings, open_backend: OpenBackend) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain and give the boards back."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    LOG.setLevel(settings.log_level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    listener = listen(settings)
    LOG.info("listening on %s", _url(listener, settings))
    with listener:
        try:
            asyncio.run(_main(Server(settings, open_backend), listener))
        finally:
            if settings.uds is not None:
                Path(settings.uds).unlink(missing_ok=True)


def _url(listener: socket.socket, settings: Settings) -> str:
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host, port = listener.getsockname()[:2]
    scheme = "http" if settings.ssl_certfile is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _main(server: Server, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, server.stop)
    await server.run(listener)
