"""A process whose emulated boards are simulated cards: runs the steps that its first argument asks
for, where memory answers after the cycles of its second and a bank gives as many lines a cycle as
its third (0: any), and prints what the cards have told: board, cycle, command of a list or
OPERATION, whether it ends."""

from __future__ import annotations

import json
import sys

from tests.rtl import simulated_cards  # (first: it replaces lora_host's module)

from tests.rtl.card_steps import from_text, run  # isort: skip

if __name__ == "__main__":
    told: list[tuple[int, ...]] = []
    simulated_cards.use(
        latency=int(sys.argv[2]),
        line_rate=float(sys.argv[3]),
        told=lambda *one: told.append(one),
    )
    run(from_text(sys.argv[1]))
    print(json.dumps(told))
