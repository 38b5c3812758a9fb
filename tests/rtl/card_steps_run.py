"""A process whose emulated boards are simulated cards: runs the steps that its argument asks
for."""

from __future__ import annotations

import sys

from tests.rtl import simulated_boards  # noqa: F401  (first: it replaces lora_host's module)
from tests.rtl.card_steps import from_text, run

if __name__ == "__main__":
    run(from_text(sys.argv[1]))
