"""What a board daemon serves, to whom, and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cluster_file import Cable, check_cables, ring
from ..device_uri import canonical, check_uri, is_emulated, is_remote, is_simulated
from ..errors import RequestError
from ..naming import counted

DEFAULT_PORT = 7410
MAX_BOARDS = 64
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?", re.ASCII)
_LOCAL = re.compile(r"(\d{1,2})\.(\d)-(\d{1,2})\.(\d)", re.ASCII)
_FAR = re.compile(r"(\d{1,2})\.(\d)=((?:tcp|unix):.+)\.(\d)", re.ASCII)


@dataclass(frozen=True)
class FarCable:
    """A cable from an emulated board's port to a port behind another daemon: `uri` names the board
    there."""

    board: int
    port: int
    uri: str
    far_port: int


@dataclass(frozen=True)
class Settings:
    """A daemon's options, checked. `boards`: URIs of this host's boards. `listen`: (host, port) of
    the TCP address, which needs `keys`, a folder that `write_keys` made. `socket`: a Unix socket.
    `users`: ids that may connect there, beside root and this user. `cables`, `far_cables`: of the
    emulated boards. `speed`: their seconds a second."""

    boards: tuple[str, ...]
    listen: tuple[str, int] | None = None
    socket: Path | None = None
    keys: Path | None = None
    users: tuple[int, ...] = ()
    cables: tuple[Cable, ...] = ()
    far_cables: tuple[FarCable, ...] = ()
    overlay: str | None = None
    kernels: str = "native"
    speed: int = 1

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each board."""
        return tuple(check_uri(uri)[1] for uri in self.boards)


def emulation_words(boards: Sequence[str], words: Sequence[str]) -> Sequence[str]:
    """Those words of a daemon's command that only emulated boards take: none for others."""
    return words if all(map(is_emulated, boards)) else ()


def check_settings(settings: Settings) -> None:
    """RequestError if the options contradict each other."""
    if not 1 <= len(settings.boards) <= MAX_BOARDS:
        raise RequestError(
            f"{counted(len(settings.boards), 'board')} named, 1..{MAX_BOARDS} expected"
        )
    seen: set[str] = set()
    for uri in settings.boards:
        check_uri(uri)
        if is_remote(uri):
            raise RequestError(f"device {uri}: behind another daemon; name boards of this computer")
        if is_simulated(uri):
            raise RequestError(f"device {uri}: daemons serve no simulated cards; name emu:KIND")
        if not is_emulated(uri) and canonical(uri) in seen:
            raise RequestError(f"device {uri}: named twice; name each board once")
        seen.add(canonical(uri))
    emulated = [uri for uri in settings.boards if is_emulated(uri)]
    if len(set(emulated)) > 1:
        raise RequestError(f"{' and '.join(sorted(set(emulated)))}: a daemon has one emulated kind")
    if settings.listen is None and settings.socket is None:
        raise RequestError("no address: name a Unix socket with --socket, or --listen with --keys")
    if settings.listen is not None and settings.keys is None:
        raise RequestError(
            "--listen without --keys: TCP is served with TLS and a token only; make them with "
            "'lora boardd init DIR'"
        )
    _check_cables(settings, len(emulated))


def _check_cables(settings: Settings, emulated: int) -> None:
    check_cables(settings.cables, emulated, "--cable: ")
    used = {(c.board_a, c.port_a) for c in settings.cables}
    used |= {(c.board_b, c.port_b) for c in settings.cables}
    for cable in settings.far_cables:
        end = (cable.board, cable.port)
        if not 0 <= cable.board < emulated or cable.port not in (0, 1) or end in used:
            raise RequestError(
                f"--cable {cable.board}.{cable.port}={cable.uri}.{cable.far_port}: no emulated "
                f"board of this daemon, 0..{emulated - 1}, has that port free"
            )
        check_uri(cable.uri)
        used.add(end)


def parse_listen(text: str) -> tuple[str, int]:
    """ "HOST:PORT", "HOST", ":PORT" or "[IPv6]:PORT" as (host, port). RequestError."""
    match = _LISTEN.fullmatch(text)
    port = int(match[2] or DEFAULT_PORT) if match else -1
    if match is None or not 0 <= port <= 65535:
        raise RequestError(f"--listen {text!r}: HOST:PORT expected, as lab2:{DEFAULT_PORT}")
    return match[1].strip("[]"), port


def parse_cables(
    texts: Sequence[str], boards: int
) -> tuple[tuple[Cable, ...], tuple[FarCable, ...]]:
    """Cables as --cable names them: "0.1-1.0" (board.port of this daemon), or
    "1.1=tcp:lab2:7410/emu:u280/0.0". None named: a ring of the emulated boards. RequestError."""
    if not texts:
        return (ring(boards) if boards else ()), ()
    near: list[Cable] = []
    far: list[FarCable] = []
    for text in texts:
        local, there = _LOCAL.fullmatch(text), _FAR.fullmatch(text)
        if local is not None:
            near.append(Cable(*map(int, local.groups())))
        elif there is not None:
            far.append(FarCable(int(there[1]), int(there[2]), there[3], int(there[4])))
        else:
            raise RequestError(
                f"--cable {text!r}: 0.1-1.0 (board.port of this daemon) or "
                "1.1=tcp:lab2:7410/emu:u280/0.0 expected"
            )
    return tuple(near), tuple(far)
