"""The top that is packed: ports by the manifest's names around the kernel's module and its ROM."""

from __future__ import annotations

from collections.abc import Iterator

from tools.vendor_build.plan import CLOCK, CONTROL, INTERRUPT, RESET, Plan
from tools.vendor_build.signals import Interface


def top(plan: Plan) -> str:
    """SystemVerilog of the module plan.name."""
    ports = [line for one in plan.interfaces for line in _declared(one)]
    values = [f"      .{name}({value})" for name, value in plan.parameters.items()]
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// Made from the manifest of {plan.overlay.name}: kernel {plan.row.name}, "
        f"{plan.row.title}.",
        "// verilator lint_off SYMRSVDWORD",
        f"module {plan.name} (",
        ",\n".join(ports),
        ");",
        "  logic [14:0] rom_word;",
        "  logic [31:0] rom_data;",
        "  firmware_rom firmware (",
        f"      .clk({CLOCK}),",
        "      .word(rom_word),",
        "      .data(rom_data)",
        "  );",
        f"  {plan.row.module} #(",
        ",\n".join(values),
        "  ) kernel (",
        ",\n".join(f"      .{port}({net})" for port, net in _connected(plan)),
        "  );",
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _declared(one: Interface) -> Iterator[str]:
    for signal in one.signals:
        way = "output" if signal.output else "input "
        width = f"[{signal.width - 1}:0]" if signal.width > 1 else ""
        yield f"    {way} wire logic {width:<8} {one.ports[signal.logical]}"


def _connected(plan: Plan) -> Iterator[tuple[str, str]]:
    """(port of the module, net). Ports of several banks or links are one, the lowest first."""
    yield from ((name, name) for name in (CLOCK, RESET))
    yield f"{INTERRUPT}_out", INTERRUPT
    control = next(one for one in plan.interfaces if one.name == CONTROL)
    yield from ((name, name) for name in control.ports.values())
    yield from _packed("m_axi", plan.memories)
    for way in ("tx", "rx"):
        yield from _packed(way, [one for one in plan.streams if one.name.startswith(way)])
    yield from (("rom_word", "rom_word"), ("rom_data", "rom_data"))


def _packed(prefix: str, interfaces: list[Interface]) -> Iterator[tuple[str, str]]:
    for signal in interfaces[0].signals if interfaces else ():
        nets = [one.ports[signal.logical] for one in reversed(interfaces)]
        yield (
            f"{prefix}_{signal.logical.lower()}",
            nets[0] if len(nets) == 1 else f"{{{', '.join(nets)}}}",
        )
