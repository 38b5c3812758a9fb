"""An engine that serves mixed requests while faults are injected into its emulated boards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_host import abi
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.adapter_folders import Folder, write_adapter
from tests.draft_folders import write_draft_model, write_head
from tests.variants import variant, write_checkpoint

WHICH = variant("llama_narrow")
TREE = TreeShape.by_width((2, 2, 1))
PROPOSERS = ("lookup", "draft", "longspec", "eagle3")
FAULTS = {
    "link down": (abi.FAULT_LINK_DOWN, 0),
    "endless flips": (abi.FAULT_LINK_FLIP, 0, 0, 1_000_000),
    "MPU stuck": (abi.FAULT_UNIT_STUCK, abi.UNIT_MPU),
    "VFU stuck": (abi.FAULT_UNIT_STUCK, abi.UNIT_VFU),
    "Router stuck": (abi.FAULT_UNIT_STUCK, abi.UNIT_ROUTER),
    "DMA stuck": (abi.FAULT_UNIT_STUCK, abi.UNIT_DMA),
    "completion lost": (abi.FAULT_COMPLETION_LOST,),
    "done lost": (abi.FAULT_DONE_LOST,),
    "firmware dead": (abi.FAULT_FIRMWARE_DEAD,),
    "blocks misfiled": (abi.FAULT_MISFILE,),
    "blocks garbled": (abi.FAULT_LINK_GARBLE, 0),
}


@dataclass(frozen=True)
class Folders:
    """A model, drafts for it and two adapters."""

    model: Path
    draft: Path
    head: Path
    adapters: tuple[Path, Path]

    @property
    def root(self) -> Path:
        """What all lie below."""
        return self.model.parent


def folders_at(root: Path) -> Folders:
    """Those that `write_folders` has written there."""
    return Folders(root / "model", root / "draft", root / "head", (root / "a", root / "b"))


def write_folders(root: Path) -> Folders:
    """Write them below `root`."""
    return Folders(
        write_checkpoint(WHICH, root / "model"),
        write_draft_model(WHICH, root / "draft"),
        write_head(WHICH, root / "head", 120),
        (
            write_adapter(WHICH, Folder("a", rank=8), root / "a"),
            write_adapter(WHICH, Folder("b", rank=16, blocks=4), root / "b"),
        ),
    )


def speculation(folders: Folders, proposer: str) -> SpeculationOptions:
    """A tree of five candidates by this proposer."""
    draft = {"lookup": None, "eagle3": folders.head}.get(proposer, folders.draft)
    return SpeculationOptions(proposer, draft, TREE, window=32)


@contextmanager
def opened(folders: Folders, boards: int | None, **options: Any) -> Iterator[Engine]:
    """An engine with the adapters "a" and "b"."""
    options = {"max_sequences": 5, "max_adapters": 2, "max_adapter_rank": 16, **options}
    with Engine(folders.model, boards=boards, **options) as engine:
        for name, path in zip("ab", folders.adapters, strict=True):
            engine.load_adapter(name, path)
        yield engine


def mixed(seed: int, count: int = 5, tokens: int = 10) -> list[tuple[list[int], SamplingParams]]:
    """Prompts of any length; every third greedy, the others sampled; with and without adapters."""
    draws = random.Random(seed)
    return [
        (
            [draws.randrange(3, 290) for _ in range(draws.randint(1, 70))],
            SamplingParams(
                max_tokens=draws.randint(2, tokens),
                ignore_eos=True,
                temperature=0.9 * bool(i % 3),
                seed=seed + i,
                n=1 + (i == 4),
                adapter=(None, "a", "b")[draws.randrange(3)],
            ),
        )
        for i in range(count)
    ]


def inject(engine: Engine, board: int, *fault: int, until_reset: bool = True) -> None:
    """A fault of a board; one that a reset heals, unless `until_reset` is False."""
    emulated = engine.cluster.emulated
    assert emulated is not None
    kind, *rest = fault
    emulated.fault(board, kind | abi.FAULT_UNTIL_RESET * until_reset, *rest)


class Disturbed:
    """Runs requests and calls `at[i]` before step i of the engine's, counted from 0."""

    def __init__(self, engine: Engine, at: Mapping[int, Callable[[], object]]) -> None:
        self._engine, self._at, self._step = engine, dict(at), 0
        self._adapted = engine._stepper._adapted

    def __enter__(self) -> Disturbed:
        self._engine._stepper._adapted = self._before  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._engine._stepper._adapted = self._adapted  # type: ignore[method-assign]

    def _before(self, rows: Any) -> Any:
        self._step += 1
        event = self._at.pop(self._step - 1, None)
        if event is not None:
            event()
        return self._adapted(rows)


def texts(engine: Engine, requests: Sequence[tuple[list[int], SamplingParams]]) -> list[Any]:
    """Tokens and log probabilities of all samples of each request, run together."""
    results = engine.generate([p for p, _ in requests], [one for _, one in requests])
    assert isinstance(results, list)
    return [_of(result) for result in results]


def _of(result: Result) -> list[Any]:
    return [(one.token_ids, one.logprobs, one.finish_reason) for one in result.outputs]
