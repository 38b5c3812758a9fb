"""An xclbin as facts and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lora_host import axlf
from lora_host.container_check import differences, facts_of, is_emulation
from lora_host.naming import counted
from lora_host.overlay import Overlay
from lora_host.xclbin import capacity, read_xclbin


def inspect_xclbin(file: Path, overlay: Overlay | None) -> dict[str, Any]:
    """Facts of the container; `differences` from the manifest of `overlay`, if given."""
    container = read_xclbin(file)
    facts: dict[str, Any] = {
        "file": str(file),
        "kind": "xclbin",
        "uuid": str(container.uuid),
        "platform": container.platform,
        "target": axlf.TARGETS.get(container.mode, f"unknown mode {container.mode}"),
        "emulation": is_emulation(container),
        "notes": facts_of(container),
        "clocks": [{"name": c.name, "mhz": c.mhz} for c in container.clocks],
        "units": [
            {
                "name": ip.name,
                "base": ip.base,
                "control": axlf.CONTROL_NAMES.get(ip.control, str(ip.control)),
            }
            for ip in container.ips
            if ip.kind == axlf.IP_KERNEL
        ],
        "banks": [
            {"tag": m.tag, "bytes": m.bytes, "base": m.base, "used": m.used}
            for m in container.memories
        ],
        "capacity": capacity(container.memories),
        "connections": [
            {
                "unit": container.ips[row.ip].name,
                "argument": row.argument,
                "bank": container.memories[row.memory].tag,
            }
            for row in container.connections
        ],
        "kernels": {
            kernel.name: [{"name": a.name, "offset": a.offset} for a in kernel.arguments]
            for kernel in container.kernels
        },
        "sections": {
            axlf.SECTION_NAMES.get(kind, str(kind)): len(content)
            for kind, content in container.sections.items()
        },
    }
    if overlay is not None:
        facts["overlay"] = overlay.name
        facts["manifest"] = str(overlay.path)
        facts["differences"] = [
            {"what": d.what, "found": d.found, "expected": d.expected}
            for d in differences(container, overlay)
        ]
    return facts


def xclbin_table(facts: dict[str, Any]) -> str:
    """The facts as lines."""
    lines = [
        f"{facts['file']}: xclbin {facts['uuid']} for {facts['platform']}, {facts['target']}",
        "holds no bitstream: for emulation only" if facts["emulation"] else "holds a bitstream",
        "clocks: " + (", ".join(f"{c['name']} {c['mhz']} MHz" for c in facts["clocks"]) or "none"),
    ]
    for unit in facts["units"]:
        name = unit["name"].partition(":")[0]
        reached = [c["bank"] for c in facts["connections"] if c["unit"] == unit["name"]]
        arguments = len(facts["kernels"].get(name, ()))
        lines.append(
            f"unit {unit['name']} at {unit['base']:#x}, {unit['control']}, {arguments} arguments, "
            f"{len(reached)} bank connections"
        )
    used = [bank for bank in facts["banks"] if bank["used"]]
    lines.append(f"banks: {len(used)} used, {facts['capacity'] / (1 << 30):.2f} GiB in all")
    for bank in used:
        lines.append(f"  {bank['tag']:<10} {bank['bytes'] >> 20:>6} MiB at {bank['base']:#x}")
    if "differences" in facts:
        found = facts["differences"]
        lines.append(f"manifest: {facts['manifest']}")
        lines.append(
            f"overlay {facts['overlay']}: "
            + (counted(len(found), "difference") if found else "fits")
        )
        lines += [f"  {d['what']}: {d['found']} found, {d['expected']} expected" for d in found]
    return "\n".join(lines)
