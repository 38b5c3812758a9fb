"""`lora-run --stats` says beside modelled times what they charge too often or leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_sdk.cli.run_command import lora_run

SHARED = "modelled: attention to pages that sequences share is charged to each of them"
MOVED = "not modelled: "


def prompt(seed: int) -> dict[str, list[int]]:
    """Two whole pages and a part."""
    return {"tokens": [(7 * index + 11 * seed) % 500 + 3 for index in range(70)]}


@pytest.mark.parametrize(
    ("seeds", "more", "shared", "moved"),
    [([1, 1], (), True, False), (range(24), ("--kv-offload", "0.1"), False, True)],
)
def test_a_line_for_each(
    seeds: list[int], more: tuple[str, ...], shared: bool, moved: bool, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(json.dumps(prompt(seed)) for seed in seeds))
    options = ("-c", "96", "--sequences", "1", "-n", "2", "--stats", *more)
    done = CliRunner().invoke(lora_run, ["--batch", str(lines), *options])
    assert done.exit_code == 0, done.output
    said = done.stderr.splitlines()
    assert any(line.startswith(SHARED) for line in said) == shared
    found = [line for line in said if line.startswith(MOVED)]
    assert len(found) == moved and all("KV pages brought to this computer" in x for x in found)
