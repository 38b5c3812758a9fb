"""What a server says of a board, whatever it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lora_host.device_uri import board_type

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine


class ServedBoard(NamedTuple):
    """What a board is. `type`: see `board_type`."""

    address: str
    name: str
    serial: int
    type: str


def served_boards(engine: Engine) -> tuple[ServedBoard, ...]:
    """An engine's boards, by board."""
    cluster = engine.cluster
    return tuple(
        ServedBoard(info.address, info.name, info.serial, board_type(entry.uri))
        for info, entry in zip(cluster.infos, cluster.entries, strict=True)
    )
