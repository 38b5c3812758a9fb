"""Reset of boards that may hang: nothing is asked of them before it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ..cluster import Cluster
from ..cluster_file import is_emulated
from ..errors import RequestError, TransportError
from ..handle import Handle
from ..lock import BoardLock
from ..overlay import Overlay
from ..records import BoardInfo, timeout_record
from ..selection import select

_PROOF = bytes(range(256)) * 16


def reset_boards(devices: Sequence[str], overlay: Overlay) -> list[tuple[BoardInfo, int]]:
    """Resets real boards, loads the overlay and has each sum a few bytes: (board, checksum) of
    each. TransportError where a board does not come back or answers wrong; RequestError for
    emulated boards, which have nothing to reset."""
    selection = select(None, devices, None, overlay)
    if any(is_emulated(entry.uri) for entry in selection.boards):
        raise RequestError("emulated boards begin anew with every program; name a real one")
    uris = [entry.uri for entry in selection.boards]
    lock = BoardLock(uris)
    handle: Handle | None = None
    try:
        handle = Handle(uris, timeout_record(None))
        handle.call("reset")
        with Cluster(handle, selection, overlay, None, lock) as cluster:
            return [(cluster.infos[board], _prove(cluster, board)) for board in range(len(uris))]
    finally:
        if handle is not None:
            handle.close()
        lock.close()


def _prove(cluster: Cluster, board: int) -> int:
    bank, offset = cluster.overlay.control_bank, 0x2000
    cluster.reserve(board, bank, offset + len(_PROOF))
    cluster.write(board, bank, offset, _PROOF)
    found, expected = cluster.checksum(board, bank, offset, len(_PROOF)), zlib.crc32(_PROOF)
    if found != expected:
        raise TransportError(
            f"{cluster.infos[board].address}: checksum {found:#010x} found after reset, "
            f"{expected:#010x} expected; power the computer off and on"
        )
    return found
