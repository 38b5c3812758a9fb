"""Emulated boards are simulated cards, whose memory and links answer now and then, in a process of
its own that imports this first (pytest: -p tests.rtl.simulated_cards). LORA_TEST_CARDS names the
cards' library."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from tests.rtl import simulated_boards  # noqa: F401  (first: it replaces lora_host's module)

from lora_host import cluster, sim  # isort: skip
from lora_host.device_uri import is_emulated  # isort: skip

SEED = 1


def use(**bench: Any) -> None:
    """Boards that are opened from now on have such a bench (sim.Bench)."""
    cards = sim.load(Path(os.environ["LORA_TEST_CARDS"]))
    replaced: Any = cluster
    replaced.Cards = partial(sim.Cards, bench=sim.Bench(library=cards, **bench))
    replaced.is_simulated = is_emulated


use(seed=SEED)
