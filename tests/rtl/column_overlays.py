"""Overlays whose column tiles lie whole in a bank each, and simulated cards that have so many
channels."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.rtl.card_build import NARROW, build
from tests.rtl_rig import ROOT

BASE = ROOT / "overlays" / "lora_w4a8_u280"


def column_overlay(folder: Path, channels: int, merge: str = "column") -> Path:
    """lora_w4a8_u280 with so many weight banks, in `folder`."""
    folder.mkdir(parents=True)
    shutil.copy(BASE / "firmware.bin", folder)
    text = (BASE / "manifest.yaml").read_text()
    for old, new in (
        ("merge: 4 ", f"merge: {merge} "),
        ("onchip_bytes: 16777216 ", "onchip_bytes: 4194304 "),  # as csrc/sim/Makefile has it
        ("weights: { first: 0, count: 32 }", f"weights: {{ first: 0, count: {channels} }}"),
        ("container: ", "# container: "),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "manifest.yaml").write_text(text)
    return folder


def channel_cards(channels: int) -> Path:
    """Cards of so many channels and narrow FP16 arrays, with the assertions of their source."""
    folder = ROOT / "build" / "rtl" / f"cards_of_{channels}_channels"
    return build(folder, CHANNELS=channels, LANES=NARROW, MORE="--assert")
