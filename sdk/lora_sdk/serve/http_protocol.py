"""uvicorn's HTTP protocol, and what clients may not do to it: break it, hold connections or read
nothing."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import cast

from h11 import IDLE, SEND_BODY, LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)


@dataclass(frozen=True)
class ConnectionLimits:
    """Of a server's connections. `seconds`: in which headers must come and answers be taken;
    `most`: connections, of which one address may have three quarters."""

    seconds: float
    most: int

    @property
    def most_of_address(self) -> int:
        """Connections of one address."""
        return max(1, self.most * 3 // 4)


class HttpProtocol(H11Protocol):
    """One connection. uvicorn leaves a traceback where a request breaks the protocol under its
    answer, and waits for ever for headers, for the rest of a body and for a client that does not
    read."""

    limits = ConnectionLimits(10.0, 1024)
    tls: ssl.SSLContext | None = None
    _late: asyncio.TimerHandle | None = None
    _early: bytearray | None = None  # what came with the last words of the handshake
    _encrypting: asyncio.Task[None] | None = None
    _idle_since = 0.0  # monotonic seconds
    _unread_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From here on, headers must come. Where there are too many connections, the one that has
        been without a request for longest is closed, or this one where all have requests."""
        super().connection_made(transport)
        self._idle_since = time.monotonic()
        if self.tls is not None:  # counted from here on, before it is encrypted
            transport.pause_reading()
            self._early = bytearray()
            self._encrypting = self.loop.create_task(self._encrypt(transport, self.tls))
        else:
            self._await_head()
        crowd = self._crowd(cast("Collection[HttpProtocol]", self.connections))
        if crowd is not None:
            idle = [one for one in crowd if one is not self and one.idle]
            if idle:
                min(idle, key=lambda one: one._idle_since).transport.abort()
            elif self.tls is not None:
                transport.abort()
            else:
                transport.write(_FULL)
                transport.close()

    async def _encrypt(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            encrypted = await self.loop.start_tls(
                transport, self, context, server_side=True,
                ssl_handshake_timeout=self.limits.seconds,
            )  # fmt: skip
        except (OSError, RuntimeError, asyncio.TimeoutError):
            encrypted = None
        if encrypted is None:
            transport.abort()
            self.connections.discard(self)
            return
        super().connection_made(encrypted)
        self._await_head()
        early, self._early = self._early, None
        if early:
            self.data_received(bytes(early))

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.is_closing()

    @property
    def address(self) -> str:
        """The client's, without its port."""
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        """Take what came. Between requests uvicorn has a limit of its own until the first byte."""
        if self._early is not None:
            self._early += data
            return
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Close a connection whose request has more body than was read: nobody waits for it."""
        self._idle_since = time.monotonic()
        if self.conn.their_state is SEND_BODY:
            self.transport.close()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """The client reads."""
        self._unread_since = None
        super().resume_writing()

    def end_if_unread(self) -> None:
        """Drop the connection if what was written has not been taken for too long; also one that
        is being closed."""
        now = time.monotonic()
        if self.transport.get_write_buffer_size() == 0:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > self.limits.seconds:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, if that can still be said. An answer that is being made ends."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()

    def _crowd(self, all_of_them: Collection[HttpProtocol]) -> Collection[HttpProtocol] | None:
        """The connections of which one must go, None where there is room."""
        if len(all_of_them) > self.limits.most:
            return all_of_them
        own = [one for one in all_of_them if one.address == self.address]
        return own if len(own) > self.limits.most_of_address else None

    def _await_head(self) -> None:
        if self.conn.their_state is not IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(self.limits.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None


def end_unread(connections: Iterable[object]) -> None:
    """Drop those whose clients do not read; to be called every second."""
    for one in list(connections):
        cast("HttpProtocol", one).end_if_unread()


def http_protocol(limits: ConnectionLimits, tls: ssl.SSLContext | None) -> type[HttpProtocol]:
    """The protocol with these limits, over TLS where there is a context."""
    return type("HttpProtocol", (HttpProtocol,), {"limits": limits, "tls": tls})
