"""`lora inspect` of a vrtbin: system map and designs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from lora_host.naming import counted
from lora_host.overlay import Overlay
from lora_host.vrtbin import differences, read_vrtbin


def inspect_vrtbin(path: Path, overlay: Overlay | None) -> dict[str, Any]:
    """Facts of a vrtbin; `differences` from the manifest of `overlay`, if given. OverlayError for a
    damaged archive."""
    found = read_vrtbin(path)
    facts: dict[str, Any] = {
        "file": str(path),
        "kind": "vrtbin",
        "emulation": found.emulation,
        "platform": found.platform,
        "clock_hz": found.clock_hz,
        "designs": {name: len(pdi) for name, pdi in found.designs.items()},
        "kernels": [
            {
                "name": kernel.name,
                "base": kernel.base,
                "bytes": kernel.bytes,
                "registers": dict(kernel.registers),
                "arguments": list(kernel.arguments),
                "connections": dict(kernel.connections),
            }
            for kernel in found.kernels
        ],
    }
    if overlay is not None:
        facts["overlay"] = overlay.name
        facts["manifest"] = str(overlay.path)
        facts["banks"] = [
            {"tag": b.name, "kind": b.kind, "bytes": b.capacity} for b in overlay.board.banks
        ]
        facts["differences"] = differences(found, overlay)
    return facts


def vrtbin_table(facts: dict[str, Any]) -> str:
    """The facts as text."""
    mark = ", emulation: holds no bitstream" if facts["emulation"] else ""
    lines = [
        f"{facts['file']}: vrtbin for {facts['platform']}{mark}",
        f"clock {facts['clock_hz']} Hz",
        *(f"design {name}: {size} B" for name, size in facts["designs"].items()),
    ]
    for kernel in facts["kernels"]:
        lines.append(
            f"kernel {kernel['name']} at {kernel['base']:#x}, {kernel['bytes']:#x} B, "
            f"{len(kernel['registers'])} registers, arguments "
            f"{', '.join(kernel['arguments']) or 'none'}"
        )
        if kernel["connections"]:
            lines.append(f"  banks {', '.join(kernel['connections'].values())}")
    if "differences" in facts:
        lines.append(f"manifest: {facts['manifest']}")
        sizes = Counter((bank["kind"], bank["bytes"]) for bank in facts["banks"])
        banks = ", ".join(f"{n} {kind} of {size >> 20} MiB" for (kind, size), n in sizes.items())
        lines.append(f"banks, by the board's description: {banks}")
        found = facts["differences"]
        verdict = counted(len(found), "difference") if found else "fits"
        lines += [f"overlay {facts['overlay']}: {verdict}", *(f"  {one}" for one in found)]
    return "\n".join(lines)
