"""Board properties, from the YAML files in `boards/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from .data import data_folder
from .errors import RequestError
from .naming import did_you_mean
from .schema import read_checked


@dataclass(frozen=True)
class Bank:
    """One memory bank. Capacity and usable are bytes, bandwidth is bytes per second."""

    index: int
    name: str
    kind: str
    capacity: int
    usable: int
    bandwidth: int


@dataclass(frozen=True)
class BoardLinks:
    """A board's links: `ports` that overlays use, `cages` that the board has."""

    cages: int
    ports: int
    lanes: int
    max_lane_bits_per_second: int


@dataclass(frozen=True)
class CagePins:
    """Pins of a shell for link cores: reference clock and lanes, with {port}, and a free-running
    clock."""

    clock: str
    lanes: str
    free_clock: str


@dataclass(frozen=True)
class Shell:
    """An Alveo card's platform, as cards name it and as the vendor's linker does. `cages`: None
    where its pins are not known."""

    card: str
    linker: str
    cages: CagePins | None


@dataclass(frozen=True)
class Board:
    """A board: `kind` is the value of its identity register, `pci_id` its user function's device
    id, `runtime` the scheme of its URIs, `clock_hz` its max kernel clock. `shell`: None for a board
    whose container is no xclbin."""

    name: str
    title: str
    kind: int
    pci_id: int
    runtime: str
    part: str
    shell: Shell | None
    clock_hz: int
    banks: tuple[Bank, ...]
    links: BoardLinks

    @property
    def ports(self) -> int:
        """Link ports."""
        return self.links.ports

    def bank_name(self, index: int) -> str:
        """Name of a bank for messages, also for an invalid index."""
        if 0 <= index < len(self.banks):
            return self.banks[index].name
        return f"bank {index}"


def board_names() -> tuple[str, ...]:
    """Names that `load_board` takes, sorted."""
    return tuple(sorted(path.stem for path in data_folder("boards").glob("*.yaml")))


def boards_of(runtime: str) -> list[Board]:
    """The boards that a runtime serves, by name."""
    boards = map(load_board, board_names())
    return [board for board in boards if board.runtime == runtime]


@cache
def load_board(name: str) -> Board:
    """The board called `name`. RequestError, with the nearest known name, if it is unknown."""
    names = board_names()
    if name not in names:
        raise RequestError(f"board {name!r} is not known; {did_you_mean(name, names)}")
    folder = data_folder("boards")
    facts = read_checked(folder / f"{name}.yaml", folder / "board.schema.json", RequestError)
    banks: list[Bank] = []
    for group in facts["bank_groups"]:
        for number in range(group["count"]):
            banks.append(
                Bank(
                    index=len(banks),
                    name=f"{group['prefix']}[{number}]",
                    kind=group["kind"],
                    capacity=group["capacity_bytes"],
                    usable=group["usable_bytes"],
                    bandwidth=group["bytes_per_second"],
                )
            )
    return Board(
        name=facts["name"],
        title=facts["title"],
        kind=facts["kind"],
        pci_id=facts["pci_id"],
        runtime=facts["runtime"],
        part=facts["part"],
        shell=_shell(facts["shell"]) if "shell" in facts else None,
        clock_hz=facts["clock_hz"],
        banks=tuple(banks),
        links=BoardLinks(**facts["links"]),
    )


def _shell(facts: dict[str, Any]) -> Shell:
    cages = facts.get("cages")
    return Shell(facts["card"], facts["linker"], CagePins(**cages) if cages else None)
