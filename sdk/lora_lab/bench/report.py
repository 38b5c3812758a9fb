"""Figures of several rounds: median and range, as JSON and as a table. All are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from statistics import median
from typing import Any

from lora_host.naming import counted
from lora_lab.bench.rounds import Round

FIGURES = tuple(field.name for field in fields(Round) if field.name != "reader")
"""Names of a round's numbers."""

LABELS = {
    "decode_tokens_per_second": ("decode", "tokens/s", 1.0),
    "prefill_tokens_per_second": ("prefill", "tokens/s", 1.0),
    "step_seconds": ("decode step", "ms", 1e3),
    "kernel_seconds_per_step": ("  kernels", "us", 1e6),
    "move_seconds_per_step": ("  moves in memory (DMA)", "us", 1e6),
    "link_seconds_per_step": ("  frames (Router)", "us", 1e6),
    "host_seconds_per_step": ("  host: all other", "us", 1e6),
    "read_bandwidth_bytes_per_second": ("memory read", "GB/s", 1e-9),
    "share_of_read_bandwidth": ("  share that decode reaches", "", 1.0),
    "loading_bytes_per_second": ("loading", "GB/s", 1e-9),
    "copy_bytes_per_second": ("memcpy into fresh pages", "GB/s", 1e-9),
    "share_of_copy_bandwidth": ("  share that loading reaches", "", 1.0),
    "check_bytes_per_second": ("checksums by the boards", "GB/s", 1e-9),
}


def summarize(rounds: Sequence[Round], **facts: Any) -> dict[str, Any]:
    """The median of each figure, its [min, max] under `spread`, all rounds, and `facts`."""
    values = {name: [getattr(one, name) for one in rounds] for name in FIGURES}
    return {
        "label": "measured",
        **facts,
        **{name: median(found) for name, found in values.items()},
        "reader": rounds[-1].reader,
        "spread": {name: [min(found), max(found)] for name, found in values.items()},
        "rounds": [{name: found[i] for name, found in values.items()} for i in range(len(rounds))],
    }


def table(report: dict[str, Any]) -> str:
    """The report as lines: median, min and max."""
    lines = [
        f"{report['model']} on {counted(report['boards'], 'emulated board')}, "
        f"{counted(report['threads'], 'thread')}, prompt {report['prompt_tokens']} + "
        f"{report['new_tokens']} tokens",
        f"measured: median of {counted(len(report['rounds']), 'round')} (min .. max)",
    ]
    for name, (label, unit, scale) in LABELS.items():
        low, high = (value * scale for value in report["spread"][name])
        lines.append(f"{label:28}{report[name] * scale:10.2f} {unit:9}({low:.2f} .. {high:.2f})")
    lines.append(
        "host: wall time of a decode step less the units' work on all boards, until the callback "
        f"returns; memory read: '{report['reader']}', {report['read_bytes'] / 1e6:.0f} MB"
    )
    return "\n".join(lines)
