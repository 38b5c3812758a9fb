"""Waits for board daemons that somebody starts again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..device_uri import split_remote
from ..errors import LoraError

_PAUSE_S = 0.1


def wait_for_daemons(uris: Iterable[str], seconds: float) -> None:
    """Return once the daemons of these boards answer, at most about so many seconds later. Raises
    nothing: whoever calls a board then is told which daemon does not."""
    remotes = [remote for uri in uris if (remote := split_remote(uri)) is not None]
    silent = {f"{remote.scheme}:{remote.where}" for remote in remotes}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        silent = {address for address in silent if not _answers(address)}
        if not silent:
            return
        time.sleep(_PAUSE_S)


def _answers(address: str) -> bool:
    """Whether the protocol is spoken: a dead daemon's socket may still take connections."""
    from .status import daemon_status  # most engines have no daemon

    try:
        daemon_status(address)
    except LoraError:
        return False
    return True
