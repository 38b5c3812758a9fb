"""The whole card as the vendor build packs it, simulated from its top on in the place of emulated
boards (tests/rtl/vendor/kernel_board.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.rtl.bench_rig import build
from tests.rtl_rig import ROOT, SOURCES
from tests.vendor_rig import planned
from tools.vendor_build.address_map import bank_ranges
from tools.vendor_build.files import write_files
from tools.vendor_build.plan import CLOCK, CONTROL, INTERRUPT, RESET, Plan
from tools.vendor_build.signals import Interface

LANES = 8  # of the arrays: the build is shorter
PRIMITIVE = ROOT / "tests" / "rtl" / "dsp48" / "DSP48E2.sv"  # a model of what the vendor has


def libboards(folder: Path, sources: Path = SOURCES) -> Path:
    """The archive for boards_build, with the files of its build in `folder`."""
    plan = planned("lora_f_u280", "card", sources)
    plan = replace(plan, parameters=plan.parameters | {"LANES": LANES})
    files = folder / "files"
    write_files(plan, files)
    made = [files / "firmware_rom.sv", files / f"{plan.name}.sv"]
    written = {
        "sources.f": "".join(f"{path}\n" for path in [*plan.sources, *made, PRIMITIVE]),
        "banks.hpp": banks(plan),
        "packed_kernel.sv": packed_kernel(plan),
    }
    for name, text in written.items():  # make looks at their times
        if not (files / name).exists() or (files / name).read_text() != text:
            (files / name).write_text(text)
    return build("vendor", "libboards.a", sources=sources, folder=folder / "build", FILES=files)


def banks(plan: Plan) -> str:
    """Where the shell has the banks, for C++."""
    ranges = bank_ranges(plan.overlay)
    rows = (f"    {{{ranges[b][0]:#x}, {ranges[b][1]:#x}}}," for b in plan.bank_indices)
    numbers = ", ".join(map(str, plan.bank_indices))
    return "\n".join(
        [
            '#include "../axi/axi_ports.hpp"',
            "constexpr BankRange BANKS[] = {",
            *rows,
            "};",
            f"constexpr uint32_t BANK_NUMBERS[] = {{{numbers}}};",
            f"constexpr uint32_t CONTROL_BANK = {plan.parameters['CONTROL_PORT']};",
            "",
        ]
    )


def packed_kernel(plan: Plan) -> str:
    """A module around the top that is packed: ports of banks and links are arrays, port 0 lowest.
    `host_rst` is for tests/rtl/crossing's host."""
    control = next(one for one in plan.interfaces if one.name == CONTROL)
    groups = [("m_axi", plan.memories)]
    groups += [(way, [s for s in plan.streams if s.name.startswith(way)]) for way in ("tx", "rx")]
    ports = [f"input logic {CLOCK}", f"input logic {RESET}", "input logic host_rst"]
    ports += ["output logic interrupted", *_declared(control)]
    for name, interfaces in groups:
        ports += _arrays(name, interfaces)
    nets = [(CLOCK, CLOCK), (RESET, RESET), (INTERRUPT, "interrupted")]
    nets += [(name, name) for name in control.ports.values()]
    for name, interfaces in groups:
        nets += _elements(name, interfaces)
    return "\n".join(
        [
            "// verilator lint_off SYMRSVDWORD",
            "module packed_kernel (",
            ",\n".join(f"    {port}" for port in ports),
            ");",
            f"  {plan.name} kernel (",
            ",\n".join(f"      .{port}({net})" for port, net in nets),
            "  );",
            "endmodule",
            "",
        ]
    )


def _way(output: bool) -> str:
    return "output" if output else "input"


def _declared(one: Interface) -> Iterator[str]:
    for signal in one.signals:
        dimension = f" [{signal.width - 1}:0]" if signal.width > 1 else ""
        yield f"{_way(signal.output)} logic{dimension} {one.ports[signal.logical]}"


def _arrays(name: str, interfaces: list[Interface]) -> Iterator[str]:
    for signal in interfaces[0].signals:
        dimension = f"[{len(interfaces) - 1}:0][{signal.width - 1}:0]"
        yield f"{_way(signal.output)} logic {dimension} {name}_{signal.logical.lower()}"


def _elements(name: str, interfaces: list[Interface]) -> Iterator[tuple[str, str]]:
    for place, one in enumerate(interfaces):
        for signal in one.signals:
            yield one.ports[signal.logical], f"{name}_{signal.logical.lower()}[{place}]"
