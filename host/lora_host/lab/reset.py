"""Resets boards that may hang, without accessing them before."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ..cluster import Cluster
from ..device_uri import is_emulated
from ..errors import RequestError, TransportError
from ..handle import Handle
from ..lock import BoardLock
from ..overlay import Overlay
from ..records import BoardInfo, timeout_record
from ..selection import select

_TEST_BYTES = bytes(range(256)) * 16


def reset_boards(devices: Sequence[str], overlay: Overlay) -> list[tuple[BoardInfo, int]]:
    """Resets real boards, loads the overlay and lets each compute a checksum: (board, checksum) of
    each. TransportError if a board does not come back or gives a wrong result; RequestError for
    emulated boards, which have nothing to reset."""
    selection = select(None, devices, None, overlay)
    if any(is_emulated(entry.uri) for entry in selection.boards):
        raise RequestError("emulated boards restart with every program; name a real one")
    uris = [entry.uri for entry in selection.boards]
    lock = BoardLock(uris)
    handle: Handle | None = None
    try:
        handle = Handle(uris, timeout_record(None))
        handle.call("reset")
        with Cluster(handle, selection, overlay, None, lock) as cluster:
            return [(cluster.infos[board], _check(cluster, board)) for board in range(len(uris))]
    finally:
        if handle is not None:
            handle.close()
        lock.close()


def _check(cluster: Cluster, board: int) -> int:
    bank, offset = cluster.overlay.control_bank, 0x2000
    cluster.reserve(board, bank, offset + len(_TEST_BYTES))
    cluster.write(board, bank, offset, _TEST_BYTES)
    found, expected = (
        cluster.checksum(board, bank, offset, len(_TEST_BYTES)),
        zlib.crc32(_TEST_BYTES),
    )
    if found != expected:
        raise TransportError(
            f"{cluster.infos[board].address}: checksum {found:#010x} found after reset, "
            f"{expected:#010x} expected; power the computer off and on"
        )
    return found
