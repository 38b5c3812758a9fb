"""The daemon's process: its boards, its sockets, a thread for each connection."""

from __future__ import annotations

import os
import selectors
import socket
import stat
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from .. import native
from ..device_uri import is_emulated
from ..emulated import Emulated
from ..errors import RequestError, TransportError, one_line
from ..failure import to_error
from ..held_folder import HeldFolder, remove_stale
from ..lock import BoardLock
from ..overlay import load_overlay
from .keys import read_token
from .settings import FarCable, Settings, check_settings

MAX_CONNECTIONS = 256  # of one address; more are closed at once
_BACKLOG = 64
_FOLDER = "lora-boardd-"  # prefix of the folder of containers; a killed daemon's goes at a start
_END_S = 10.0
_AGAIN_S = 0.5  # between two attempts to connect a cable


class Daemon:
    """Boards that are served from `run` until `stop`; a context manager. `boards`: their names, as
    in clients' URIs. `addresses`: where, as the beginning of those URIs. Real boards are locked
    from the start. `emulated`: the emulated boards, None without."""

    def __init__(self, settings: Settings) -> None:
        check_settings(settings)
        self._settings = settings
        self._ffi, self._lib = native.ffi(), native.lib()
        self._stopping = threading.Event()
        self._sessions: set[threading.Thread] = set()
        self._sockets: list[socket.socket] = []
        self._bound: tuple[str, int] | None = None  # path and inode of the Unix socket
        self._pointer: Any = None
        self._lock: BoardLock | None = None
        self.emulated: Emulated | None = None
        remove_stale(_FOLDER)
        self._folder = HeldFolder(_FOLDER)
        self.boards: tuple[str, ...] = ()
        self.addresses: tuple[str, ...] = ()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        settings = self._settings
        real = [uri for uri in settings.boards if not is_emulated(uri)]
        self.addresses = tuple(self._listen())
        self._lock = BoardLock(real)
        for uri in real:
            self._check_answers(uri)
        if len(real) < len(settings.boards):
            self.emulated = self._emulate()
        self._pointer = self._create(settings)

    def _check_answers(self, uri: str) -> None:
        """Opens a board and gives it back, before clients are told that there is one."""
        name = self._ffi.new("char[]", uri.encode())
        opened = self._ffi.new("struct lora_cluster **")
        failure = self._ffi.new("struct lora_failure *")
        if self._lib.lora_cluster_open([name], 1, opened, failure):
            raise TransportError(f"--board {uri} does not answer here: {to_error(failure)}")
        self._lib.lora_cluster_close(opened[0])

    def _emulate(self) -> Emulated:
        settings = self._settings
        kinds = [
            kind
            for uri, kind in zip(settings.boards, settings.kinds, strict=True)
            if is_emulated(uri)
        ]
        overlay = load_overlay(settings.overlay or f"lora_f_{kinds[0]}")
        if overlay.board.name != kinds[0]:
            raise RequestError(
                f"overlay {overlay.name}: for a {overlay.board.name}, the emulated boards are "
                f"{kinds[0]}"
            )
        serials = [self._serial(board) for board in range(len(kinds))]
        return Emulated(overlay, serials, settings.cables, settings.kernels)

    def _serial(self, board: int) -> int:
        """The same at each start, and another one for each daemon: serials are unique in a
        cluster."""
        name = f"{socket.gethostname()} {' '.join(self.addresses)} {board}"
        return zlib.crc32(name.encode()) % 0xFFFFFFFD + 1

    def _create(self, settings: Settings) -> Any:
        new = self._ffi.new
        names: list[str] = []
        uris: list[str] = []
        for uri in settings.boards:
            number = sum(is_emulated(name) for name in names)
            names.append(f"{uri}/{number}" if is_emulated(uri) else uri)
            uris.append(self.emulated.uri(number) if is_emulated(uri) and self.emulated else uri)
        self.boards = tuple(names)
        kept = [new("char[]", text.encode()) for text in (*names, *uris)]
        boards = new("struct lora_boardd_board[]", len(names))
        for index, board in enumerate(boards):
            board.name, board.uri = kept[index], kept[len(names) + index]
            if self.emulated is not None and is_emulated(settings.boards[index]):
                board.emulated = self.emulated.number
                board.index = sum(map(is_emulated, settings.boards[:index]))
        config = new("struct lora_boardd_config *")
        config.size = self._ffi.sizeof("struct lora_boardd_config")
        config.board_count, config.boards = len(names), boards
        texts = {"folder": os.fspath(self._folder.path)}
        if settings.keys is not None:
            texts |= {"keys": os.fspath(settings.keys), "token": read_token(settings.keys)}
        for field, text in texts.items():
            kept.append(new("char[]", os.fsencode(text)))
            setattr(config, field, kept[-1])
        users = new("uint32_t[]", list(settings.users))
        config.users, config.user_count = users, len(settings.users)
        config.speed = settings.speed
        made, failure = new("struct lora_boardd **"), new("struct lora_failure *")
        if self._lib.lora_boardd_create(config, made, failure):
            raise to_error(failure)
        return made[0]

    # --- sockets ---

    def _listen(self) -> list[str]:
        settings = self._settings
        found = []
        if settings.socket is not None:
            found.append(self._listen_unix(os.fspath(settings.socket)))
        if settings.listen is not None:
            found.append(self._listen_tcp(*settings.listen))
        return found

    def _listen_unix(self, path: str) -> str:
        if ":" in path or len(os.fsencode(path)) > 107:
            raise RequestError(f"--socket {path}: no colon and at most 107 bytes expected")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(made)
        _remove_dead(path)
        mask = os.umask(0o177 if not self._settings.users else 0o111)
        try:
            made.bind(path)
        except OSError as cause:
            raise TransportError(f"{path}: {cause.strerror}; name another socket") from None
        finally:
            os.umask(mask)
        self._bound = (path, os.stat(path).st_ino)
        made.listen(_BACKLOG)
        return f"unix:{path}"

    def _listen_tcp(self, host: str, port: int) -> str:
        try:
            facts = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = facts[0]
            made = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)
        except OSError as cause:
            raise TransportError(
                f"{host or '*'}:{port}: {cause.strerror or cause}; name another address"
            ) from None
        name = host or socket.gethostname()
        return f"tcp:{f'[{name}]' if ':' in name else name}:{made.getsockname()[1]}"

    # --- service ---

    def run(self) -> None:
        """Serves until `stop`. Connections that are open then end."""
        for cable in self._settings.far_cables:
            self._start(self._hold, cable)
        with selectors.DefaultSelector() as selector:
            for at in self._sockets:
                at.setblocking(False)
                selector.register(at, selectors.EVENT_READ, [0])
            while not self._stopping.is_set():
                for key, _ in selector.select(0.2):
                    self._accept(key.fileobj, key.data)

    def _hold(self, cable: FarCable) -> None:
        """Keeps a cable to another daemon in, however often that one is started."""
        failure = self._ffi.new("struct lora_failure *")
        uri = self._ffi.new("char[]", cable.uri.encode())
        places = [i for i, board in enumerate(self._settings.boards) if is_emulated(board)]
        ends = (places[cable.board], cable.port, uri, cable.far_port)
        said = ""
        while not self._stopping.is_set():
            status = self._lib.lora_boardd_cable(self._pointer, *ends, failure)
            message = one_line(to_error(failure)) if status else ""
            if message and message != said:
                sys.stderr.write(
                    f"cable {cable.board}.{cable.port}={cable.uri}.{cable.far_port}: {message}\n"
                )
            said = message
            self._stopping.wait(_AGAIN_S)
        self._sessions.discard(threading.current_thread())

    def _accept(self, at: Any, count: list[int]) -> None:
        try:
            connection, _ = at.accept()
        except OSError:  # it is gone again, or no descriptor is left
            self._stopping.wait(0.01)
            return
        if count[0] >= MAX_CONNECTIONS:
            connection.close()
            return
        count[0] += 1
        self._start(self._serve, connection.detach(), count)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._sessions.add(thread)
        thread.start()

    def _serve(self, descriptor: int, count: list[int]) -> None:
        try:
            self._lib.lora_boardd_serve(self._pointer, descriptor)
        finally:
            count[0] -= 1
            self._sessions.discard(threading.current_thread())

    def stop(self) -> None:
        """Ends `run` and all connections. From any thread, or a signal's handler."""
        self._stopping.set()
        for at in self._sockets:  # first, so that who sees the end meets nobody who still answers
            with suppress(OSError):
                at.shutdown(socket.SHUT_RDWR)
        if self._pointer is not None:
            self._lib.lora_boardd_stop(self._pointer)

    def close(self) -> None:
        """Gives the boards back. May be called twice."""
        self.stop()
        for at in self._sockets:
            at.close()
        if self._bound is not None:
            _unlink(*self._bound)
        self._sockets, self._bound = [], None
        for thread in list(self._sessions):
            thread.join(_END_S)
        if self._pointer is not None and not self._sessions:
            self._lib.lora_boardd_destroy(self._pointer)
        self._pointer = None
        if self.emulated is not None:
            self.emulated.close()
        if self._lock is not None:
            self._lock.close()
        self._folder.remove()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _remove_dead(path: str) -> None:
    """A socket that a daemon has left. TransportError if one answers there."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise TransportError(f"{path}: no socket, and in the way; name another one")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as cause:
            raise TransportError(f"{path}: {cause}; name another socket") from None
    raise TransportError(f"{path}: a daemon serves there already; name another socket")


def _unlink(path: str, inode: int) -> None:
    try:
        if os.lstat(path).st_ino == inode:
            os.unlink(path)
    except OSError:
        pass
