"""What the engine's process of each target runs: an engine, one with a worker, or a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lora_cluster.dispatch.fleet import Fleet
from lora_lab.torture.rig import Rig
from lora_sdk.engine.engine import Engine

Opened = tuple[Any, list[Engine]]  # what computes texts, and the engines whose steps are watched


@contextmanager
def plain(rig: Rig, uris: Sequence[str], speculative: bool, **options: Any) -> Iterator[Opened]:
    """On the boards `uris`, else on two of this process."""
    if uris:
        options["devices"] = uris
    with rig.opened(None if uris else 2, speculative, **options) as engine:
        yield engine, [engine]


@contextmanager
def worker(rig: Rig, uris: Sequence[str], speculative: bool, **options: Any) -> Iterator[Opened]:
    """On two boards of this process; prompts are computed on `uris`."""
    prefill = f"boards:{','.join(uris)}"
    with rig.opened(2, speculative, prefill=prefill, **options) as engine:
        yield engine, [engine]


@contextmanager
def fleet(rig: Rig, uris: Sequence[str], speculative: bool, **options: Any) -> Iterator[Opened]:
    """A fleet: its worker on `uris`, its cluster on a board of this process."""
    with ExitStack() as stack:
        engines = [
            stack.enter_context(rig.opened(boards, speculative, **more, **options))
            for boards, more in ((None, {"devices": uris}), (1, {}))
        ]
        yield stack.enter_context(Fleet(engines[:1], engines[1:])), engines


ENGINES: dict[str, Callable[..., Any]] = {
    "host": plain, "xrt": plain, "slash": plain, "boardd": plain, "worker": worker, "fleet": fleet,
}  # fmt: skip


def handed_over(target: str, opened: Any) -> int:
    """Prompts that a worker has computed and handed over; 1 where a target has none."""
    if target == "worker":
        return int(opened.prefill_use.prompts)
    return int(opened.use.prefilled_by_workers) if target == "fleet" else 1
