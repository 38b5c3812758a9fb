"""What a board's control costs: cycles in which its soft core dispatches commands, from counts that
the firmware image gave on an emulated core (`data/control.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_lab.timing.facts import DATA

if TYPE_CHECKING:
    from lora_lab.timing.step import StepShape

FILE = DATA / "control.yaml"


@dataclass(frozen=True)
class Core:
    """A small rv32imc core: cycles per instruction by class, nanoseconds per word of board memory
    through its window, cycles per access to a register or mailbox."""

    alu: float
    shift: float
    multiply: float
    divide: float
    load: float
    store: float
    branch: float
    taken_branch: float
    jump: float
    indirect_jump: float
    window_ns: float
    register: float


@dataclass(frozen=True)
class Cost:
    """What something costs the core: cycles of its instructions, words through the window to board
    memory, accesses to registers and mailboxes."""

    instructions: float
    window: float
    register: float

    def cycles(self, clock_hz: float) -> float:
        """Cycles of a core at `clock_hz`."""
        core = control_core()
        window = self.window * core.window_ns * 1e-9 * clock_hz
        return self.instructions + window + self.register * core.register


@dataclass(frozen=True)
class ListCost:
    """Counts of one list. `command`: between two commands while no unit runs, mean over the list.
    `step`: from doorbell to first start and from last end to done, one row and one commit. `token`:
    the same from one token to the next where boards choose them."""

    boards: int
    commands: int
    command: Cost
    step: Cost
    token: Cost


@cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_yaml(FILE, RequestError)
    return found


@cache
def control_core() -> Core:
    """The core that is charged."""
    return Core(**{name: entry["value"] for name, entry in _data()["core"].items()})


@cache
def list_costs() -> tuple[ListCost, ...]:
    """Counts by number of boards, ascending."""
    return tuple(
        ListCost(
            entry["boards"],
            entry["commands"],
            *(Cost(*entry[name]) for name in ("command", "step", "token")),
        )
        for entry in _data()["lists"]
    )


@cache
def part_costs() -> Mapping[str, Cost]:
    """What a further row, committed position and KV tile add to a step."""
    return {name: Cost(*counts) for name, counts in _data()["parts"].items()}


VOTES = 3  # last commands of a step on several boards: out of the results, over the links, back


@dataclass(frozen=True)
class Dispatch:
    """Cycles of dispatch at a clock: of a step, of a token that boards choose, of a command after
    the first, of a row, of a committed position, and of a tile of KV positions."""

    step: float
    token: float
    command: float
    row: float
    commit: float
    tile: float

    def before(self, shape: StepShape) -> float:
        """Cycles of a step that no unit's time hides, besides those between commands."""
        tiles = -(-(shape.kv_positions + shape.shared) // abi.TILE_POSITIONS)
        return (
            (self.token if by_boards(shape) else self.step)
            + max(0, shape.rows - 1) * self.row
            + max(0, shape.committed - 1) * self.commit
            + max(0, tiles - 1) * self.tile
        )

    def between(self, commands: int) -> float:
        """Cycles between the commands of a step."""
        return max(0, commands - 1) * self.command


def by_boards(shape: StepShape) -> bool:
    """Whether boards choose the step's token and go on by themselves: one row of one sequence,
    after another such row."""
    return (shape.rows, shape.sampled, shape.committed, shape.sequences) == (1, 1, 1, 1)


def firmware_dispatch(boards: int, clock_hz: float) -> Dispatch:
    """Dispatch by the firmware of one of `boards` boards, on a core at `clock_hz`. Beyond the
    counted numbers of boards each further one adds, by its vote, what it adds between the two
    largest."""
    counted = list_costs()
    of_list = max((e for e in counted if e.boards <= boards), key=lambda e: e.boards)
    fewer, most = counted[-2:]
    votes = max(0, boards - most.boards) / (most.boards - fewer.boards)

    def cycles(name: str) -> float:
        here, less, more = (getattr(e, name).cycles(clock_hz) for e in (of_list, fewer, most))
        return float(here + votes * (more - less))

    parts = part_costs()
    return Dispatch(
        cycles("step"),
        cycles("token"),
        of_list.command.cycles(clock_hz),
        *(parts[name].cycles(clock_hz) for name in ("row", "commit", "tile")),
    )
