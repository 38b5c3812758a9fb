"""Device URIs: boards of this computer, and boards behind a board daemon, whose URI is nested."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .boards import board_names, boards_of
from .errors import RequestError
from .naming import did_you_mean

EMULATED_SCHEME = "emu"
SIMULATED_SCHEME = "sim"  # emulated boards that are simulated cards
REAL_SCHEMES = ("xrt", "slash")  # `runtime` of a board's file
REMOTE_SCHEMES = ("tcp", "unix")
_BDF = re.compile(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?", re.IGNORECASE | re.ASCII)
_HOST = r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9._-]+)"
_HOST_PORT = rf"{_HOST}:(?P<port>[0-9]{{1,5}})"
_PATH = r"(?P<path>[^:\0\n\r]+)"
_TCP = re.compile(rf"{_HOST_PORT}/(?P<board>.+)", re.ASCII)
_UNIX = re.compile(rf"{_PATH}/(?P<board>[a-z]+:.+)", re.ASCII)
_WHERE = {"tcp": re.compile(_HOST_PORT, re.ASCII), "unix": re.compile(_PATH, re.ASCII)}
_BOARD_CHARACTERS, _PATH_BYTES = 63, 107


@dataclass(frozen=True)
class RemoteUri:
    """A board behind a daemon. `where`: "HOST:PORT" or a socket's path; `board`: its own URI."""

    scheme: str
    where: str
    board: str

    @property
    def has_keys(self) -> bool:
        """Whether both ends show certificates."""
        return self.scheme == "tcp"


def split_remote(uri: str) -> RemoteUri | None:
    """The parts of a nested URI, None for one of this computer. RequestError if it is nested and
    invalid."""
    scheme, _, rest = uri.partition(":")
    if scheme not in REMOTE_SCHEMES:
        return None
    match = (_TCP if scheme == "tcp" else _UNIX).fullmatch(rest)
    if match is None:
        raise RequestError(f"device {uri!r}: {_EXPECTED[scheme]} expected")
    board = match["board"]
    where = f"{match['host']}:{match['port']}" if scheme == "tcp" else match["path"]
    _check_where(f"device {uri!r}", scheme, where)
    if len(board) > _BOARD_CHARACTERS:
        raise RequestError(f"device {uri!r}: a board's name has at most {_BOARD_CHARACTERS} bytes")
    return RemoteUri(scheme, where, board)


def split_address(address: str) -> tuple[str, str]:
    """(scheme, where) of a daemon's address, tcp:HOST:PORT or unix:PATH: where its boards' URIs
    begin. RequestError if it is none."""
    scheme, _, where = address.rstrip("/").partition(":")
    if scheme not in REMOTE_SCHEMES or not _WHERE[scheme].fullmatch(where):
        raise RequestError(
            f"address {address!r}: tcp:HOST:PORT or unix:PATH expected, as tcp:lab2:7410 or "
            "unix:/run/lora/boardd.sock"
        )
    _check_where(f"address {address!r}", scheme, where)
    return scheme, where


def _check_where(subject: str, scheme: str, where: str) -> None:
    port = where.rpartition(":")[2]
    if scheme == "tcp" and not 1 <= int(port) <= 65535:
        raise RequestError(f"{subject}: port {port} found, 1..65535 expected")
    if scheme == "unix" and len(os.fsencode(where)) > _PATH_BYTES:
        raise RequestError(f"{subject}: a socket's path has at most {_PATH_BYTES} bytes")


_EXPECTED = {
    "tcp": "tcp:HOST:PORT/BOARD, as tcp:lab2:7410/emu:u280 or tcp:[fd00::2]:7410/xrt:0000:3b:00.1,",
    "unix": "unix:SOCKET/BOARD, as unix:/run/lora/boardd.sock/emu:u280,",
}


def is_remote(uri: str) -> bool:
    """Whether a URI names a board behind a daemon."""
    return uri.partition(":")[0] in REMOTE_SCHEMES


def is_emulated(uri: str) -> bool:
    """Whether a checked URI names an emulated board of this process, or a simulated card."""
    return uri.startswith((f"{EMULATED_SCHEME}:", f"{SIMULATED_SCHEME}:"))


def is_simulated(uri: str) -> bool:
    """Whether a checked URI names a simulated card."""
    return uri.startswith(f"{SIMULATED_SCHEME}:")


def check_cards(devices: Sequence[str], kernels: str, trace: bool) -> None:
    """RequestError for options of emulated boards that simulated cards among `devices` do not
    take."""
    if not any(map(is_simulated, devices)):
        return
    if kernels != "native":
        raise RequestError(
            f"kernels {kernels!r}: simulated cards have units of their own; leave the kernels out"
        )
    if trace:
        raise RequestError("trace: simulated cards keep no traces of commands; use emulated boards")


def is_model(uri: str) -> bool:
    """Whether a checked URI names an emulated board, of this process or of a daemon."""
    remote = split_remote(uri)
    return is_emulated(uri if remote is None else remote.board)


def board_type(uri: str) -> str:
    """What stands behind a checked URI: "emulated", "simulated" or "real"."""
    if is_simulated(uri):
        return "simulated"
    return "emulated" if is_model(uri) else "real"


def xrt_emulates(uri: str, variables: Mapping[str, str]) -> bool:
    """Whether a checked URI names a board that XRT emulates with these environment variables."""
    return uri.startswith("xrt:") and bool(variables.get("XCL_EMULATION_MODE"))


def board_uris(scheme: str) -> list[str]:
    """A URI for each kind of board: of EMULATED_SCHEME or SIMULATED_SCHEME."""
    return [f"{scheme}:{name}" for name in board_names()]


def uri_boards(uri: str) -> tuple[str, ...]:
    """Names of the boards that a checked URI may stand for: several of an XRT board's, which the
    overlay chooses from."""
    remote = split_remote(uri)
    scheme, _, rest = (uri if remote is None else remote.board).partition(":")
    if scheme in REAL_SCHEMES:
        return tuple(board.name for board in boards_of(scheme))
    return (rest.partition("/")[0],)


def is_bdf(text: str) -> bool:
    """Whether a text is a PCI address, with or without its domain and function."""
    return _BDF.fullmatch(text) is not None


def check_uri(uri: str) -> tuple[str, str]:
    """(scheme, board kind) of a board's URI: emu:KIND, sim:KIND, xrt:BDF, xrt:INDEX, slash:BDF, or
    one of these behind a daemon (tcp:HOST:PORT/..., unix:SOCKET/...), where emu:KIND/N names the
    Nth emulated board. A kind of "": one of those that `uri_boards` names. RequestError, with the
    nearest known URI, if it is invalid."""
    remote = split_remote(uri)
    if remote is None:
        return _check_local(uri)
    if is_simulated(remote.board):
        raise RequestError(f"device {uri!r}: daemons serve no simulated cards; use emu:KIND there")
    board, slash, number = remote.board.partition("/")
    if slash and not (is_emulated(board) and number.isdecimal() and number.isascii()):
        raise RequestError(f"device {uri!r}: board {remote.board!r}: emu:KIND/NUMBER expected")
    try:
        return remote.scheme, _check_local(board)[1]
    except RequestError as cause:
        raise RequestError(f"device {uri!r}: behind the daemon: {cause}") from None


def _check_local(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition(":")
    if scheme in REAL_SCHEMES and (is_bdf(rest) or (scheme == "xrt" and _is_index(rest))):
        kinds = uri_boards(uri)
        return scheme, kinds[0] if len(kinds) == 1 else ""
    known = [*board_uris(EMULATED_SCHEME), *board_uris(SIMULATED_SCHEME)]
    if uri in known:
        return scheme, rest
    if "," in uri:
        raise RequestError(
            f"device {uri!r}: one board expected, commas found; repeat --device for each board"
        )
    known += ["xrt:0", "xrt:0000:3b:00.1", "slash:0000:21:00.0"]
    raise RequestError(f"device {uri!r}: not a device URI; {did_you_mean(uri, known)}")


def _is_index(text: str) -> bool:
    return text.isdecimal() and text.isascii()


def canonical(uri: str) -> str:
    """A board's URI in canonical form: PCI domain added, function removed, letters of addresses and
    host names in lower case. Of a board behind a daemon its own URI too; a socket's path stays."""
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    remote = _split(f"{scheme}:{rest}")
    if remote is not None:
        where = remote.where.lower() if scheme == "tcp" else os.path.normpath(remote.where)
        return f"{scheme}:{where}/{canonical(remote.board)}"
    if not is_bdf(rest):
        return f"{scheme}:{rest.lower()}"
    bdf = rest.lower().partition(".")[0]
    return f"{scheme}:{bdf if bdf.count(':') == 2 else '0000:' + bdf}"


def _split(uri: str) -> RemoteUri | None:
    try:
        return split_remote(uri)
    except RequestError:  # not one that can be opened, and another name for nothing
        return None
