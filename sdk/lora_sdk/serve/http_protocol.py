"""uvicorn's HTTP protocol, and what a malformed request may not do to it."""

from __future__ import annotations

import asyncio

from h11 import IDLE, LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol


class HttpProtocol(H11Protocol):
    """Closes a connection whose client breaks the protocol when no answer may follow any more;
    uvicorn tries to answer and leaves a traceback. Closes one, too, whose request's headers do not
    arrive within `head_timeout` seconds; uvicorn waits for ever."""

    head_timeout = 10.0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From here on, headers must come."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what came. Between requests uvicorn has a limit of its own until the first byte."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self.conn.their_state is not IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(self.head_timeout, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, if that can still be said."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()


def http_protocol(head_timeout: float) -> type[HttpProtocol]:
    """The protocol with this limit for headers, in seconds."""
    return type("HttpProtocol", (HttpProtocol,), {"head_timeout": head_timeout})
