"""plan.tcl: what the scripts of overlays/rtl/vendor/tcl are told."""

from __future__ import annotations

from pathlib import Path

import yaml

from lora_host import abi
from tools.vendor_build.aurora_flow import lane_rate
from tools.vendor_build.errors import BuildError
from tools.vendor_build.kernel_xml import LIBRARY, VENDOR, VERSION
from tools.vendor_build.kernels import RTL
from tools.vendor_build.plan import CLOCK, CONTROL, INTERRUPT, RESET, Plan
from tools.vendor_build.signals import Interface
from tools.vendor_build.tcl import assigned, pairs, words

REFERENCE_MHZ = "322.265625"  # of the V80's transceivers: assumed, nobody here has a board


def plan_tcl(plan: Plan, folder: Path, generated: list[Path]) -> str:
    """The file, for a build in `folder`; `generated`: sources that lie there."""
    facts: dict[str, object] = {
        "name": plan.name,
        "vendor": VENDOR,
        "library": LIBRARY,
        "version": VERSION,
        "title": f"{plan.overlay.title}: {plan.row.title}",
        "part": plan.part,
        "folder": folder,
        "sources": words([*plan.sources, *generated]),
        "constraints": words([folder / "clock.xdc"]),
        "clock": CLOCK,
        "reset": RESET,
        "interrupt": INTERRUPT,
        "control": CONTROL,
        "period": f"{1e9 / plan.overlay.clock_hz:.3f}",
        "interfaces": words(
            pairs({"name": one.name, "type": one.type, "mode": "master" if one.master else "slave",
                   "width": one.width, "ports": pairs(one.ports), "widths": pairs(widths(one))})
            for one in plan.interfaces
        ),
        "link": pairs(link_facts(plan)),
        "registers": words(
            pairs({"name": one.name, "offset": hex(one.offset), "bits": one.bits, 
                   "access": one.access,
                   "port": one.port})
            for one in plan.registers
        ),
        "register_bytes": plan.register_bytes,
        "crossings": words(pairs(row) for row in crossing_rows(plan)),
        "floorplan": pairs(plan.row.floorplan.get(plan.overlay.board.name, {})),
        "xo": folder / f"{plan.name}.xo" if plan.overlay.board.shell is not None else "",
        "kernel_xml": folder / "kernel.xml",
    }  # fmt: skip
    return "# Made from a manifest by tools/vendor_build.\n" + assigned("plan", facts)


def widths(one: Interface) -> dict[str, int]:
    """Bits of each signal."""
    return {signal.logical: signal.width for signal in one.signals}


def link_facts(plan: Plan) -> dict[str, object]:
    """What the Aurora cores are told; no ports where the kernel has no links. The rate is
    AuroraFlow's too, so that boards of both kinds understand each other."""
    links = plan.overlay.links
    return {
        "ports": words(range(abi.PORTS if plan.row.links else 0)),
        "lanes": links.lanes,
        "rate": f"{lane_rate(plan.overlay) / 1e9:.10g}",
        "reference": REFERENCE_MHZ,
        "framing": int(links.framing),
    }


def clock_xdc(plan: Plan) -> str:
    """The clock of a kernel that is synthesized apart from its shell, which gives the real one."""
    period = 1e9 / plan.overlay.clock_hz
    return f"create_clock -name {CLOCK} -period {period:.3f} [get_ports {CLOCK}]\n"


def crossing_rows(plan: Plan, rtl: Path = RTL) -> list[dict[str, str]]:
    """Bounds of the crossing cells that are among the sources: rows of crossings.yaml. BuildError
    for a cell that has none and is no bundle of others."""
    declared = yaml.safe_load((rtl / "crossings.yaml").read_text())
    there = {path.stem for path in plan.sources}
    rows = [row for row in declared["bounds"] if row["cell"] in there]
    bound = {row["cell"] for row in declared["bounds"]} | set(declared["bundles"])
    missing = sorted(set(declared["cells"]) - bound)
    if missing:
        raise BuildError(
            f"crossings.yaml: no bounds for {missing}: add them, or list them as bundles"
        )
    return [{key: str(value) for key, value in row.items()} for row in rows]
