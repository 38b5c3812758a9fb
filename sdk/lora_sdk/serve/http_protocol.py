"""uvicorn's HTTP protocol, and what a malformed request may not do to it."""

from __future__ import annotations

from h11 import LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol


class HttpProtocol(H11Protocol):
    """Closes a connection whose client breaks the protocol when no answer may follow any more;
    uvicorn tries to answer and leaves a traceback."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, if that can still be said."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()
