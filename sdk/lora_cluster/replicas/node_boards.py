"""Which boards a Ray node has: those that `lora ray start` declared for it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from lora_host.errors import RequestError, TransportError
from lora_host.naming import counted
from lora_sdk.opening.options import BOARD_KINDS

_EXPECTED = " or ".join(f"{kind}=N" for kind in BOARD_KINDS)
BOARDS = "LORA_RAY_BOARDS"
"""Environment variable of a node's processes: JSON, URIs by kind of board."""


def resource(kind: str) -> str:
    """Ray's name for boards of a kind, counted by node."""
    return f"fpga_{kind}"


def resources(boards: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """What a node with these boards declares."""
    return {resource(kind): float(len(uris)) for kind, uris in boards.items() if uris}


def found_boards() -> dict[str, list[str]]:
    """URIs of this computer's boards by kind, as `lora list` finds them."""
    from lora_host.lab.inventory import inventory

    found: dict[str, list[str]] = {}
    for view in inventory():
        if view.board in BOARD_KINDS:
            found.setdefault(view.board, []).append(view.uri)
    return found


def emulated(counts: Sequence[str]) -> dict[str, list[str]]:
    """Boards of options such as "u280=4". RequestError names a bad one."""
    found: dict[str, list[str]] = {}
    for text in counts:
        kind, equals, number = text.partition("=")
        if kind not in BOARD_KINDS or not equals or not number.isascii() or not number.isdigit():
            raise RequestError(f"--emulated {text!r:.60}; expected {_EXPECTED}")
        if not 1 <= len(number) <= 3 or int(number) < 1:
            raise RequestError(f"--emulated {text!r:.60}; expected 1 to 999 boards")
        found[kind] = [f"emu:{kind}"] * int(number)
    return found


def encoded(boards: Mapping[str, Sequence[str]]) -> str:
    """The value of the environment variable."""
    return json.dumps({kind: list(uris) for kind, uris in boards.items()})


def free_boards(kind: str, count: int) -> list[str]:
    """URIs of this node's boards that no process holds. TransportError: too few."""
    from lora_host.lock import holder

    known = _declared().get(kind, [])
    free = [uri for uri in known if holder(uri) is None]
    if len(free) < count:
        held = [f"{uri} by process {holder(uri)}" for uri in known if uri not in free]
        more = f"; held: {', '.join(held)}" if held else "; see lora ray start"
        raise TransportError(
            f"the node has {counted(len(free), f'free {kind} board')} of {len(known)}; "
            f"expected {count}{more}"
        )
    return free[:count]


def _declared() -> Mapping[str, Sequence[str]]:
    """A node that was started by other means has the boards that are found there."""
    text = os.environ.get(BOARDS)
    if text is None:
        return found_boards()
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TransportError(f"{BOARDS} is {text!r:.60}; expected a JSON object of lists of URIs")
    return {str(kind): [str(uri) for uri in uris] for kind, uris in value.items()}
