"""Words of messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lora_host.naming import counted

ROOT = Path(__file__).resolve().parents[2]
NEVER_ONE = (  # of other numbers than 1
    "partition.py", "shape_ops.py", "target.py", "adapter_ops.py", "slots.py", "cluster_file.py",
    "bench.py", "placement.py", "topology.py",
)  # fmt: skip


@pytest.mark.parametrize(("count", "text"), [(0, "0 boards"), (1, "1 board"), (2, "2 boards")])
def test_a_number_of_things(count: int, text: str) -> None:
    assert counted(count, "board") == text


def test_no_message_can_say_1_boards() -> None:
    for path in [*(ROOT / "sdk").rglob("*.py"), *(ROOT / "host").rglob("*.py")]:
        found = re.findall(r"\{[^{}]*\} (?:boards|devices)\b", path.read_text())
        assert not found or path.name in NEVER_ONE, (path, found)
