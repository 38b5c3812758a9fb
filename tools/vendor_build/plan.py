"""All that one build needs, from a manifest, abi.h and a row of kernels.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lora_host import abi, alveo_container, vrtbin
from lora_host.kernel_metadata import GLOBAL, REGISTER_BYTES, SCALAR
from lora_host.overlay import Overlay
from tools.vendor_build import signals
from tools.vendor_build.address_map import address_map
from tools.vendor_build.errors import BuildError
from tools.vendor_build.kernels import RTL, KernelRow, sources
from tools.vendor_build.signals import Interface

CONTROL = "s_axi_control"
CLOCK, RESET, INTERRUPT = "ap_clk", "ap_rst_n", "interrupt"
LINK_BYTES = 32  # of axi/link_streams.sv
REGISTERS_END = abi.REG_ARENAS + abi.MAX_ARENAS * abi.dtype("arena_record").itemsize


@dataclass(frozen=True)
class Register:
    """A register as the vendor's tools see it; `port`: of the bank that a pointer is for."""

    name: str
    offset: int
    bits: int
    access: str
    port: str = ""


@dataclass(frozen=True)
class Plan:
    """A kernel of a manifest. `bank_indices`: that it has ports to, ascending. `register_bytes`: of
    its registers in the shell's address map; `register_end`: behind the last one that there is."""

    overlay: Overlay
    row: KernelRow
    name: str
    part: str
    sources: tuple[Path, ...]
    bank_indices: tuple[int, ...]
    interfaces: tuple[Interface, ...]
    registers: tuple[Register, ...]
    register_bytes: int
    register_end: int
    parameters: dict[str, int | str]
    firmware: tuple[int, ...]

    @property
    def memories(self) -> list[Interface]:
        """Memory ports, lowest bank first."""
        return [one for one in self.interfaces if one.bank]

    @property
    def streams(self) -> list[Interface]:
        """tx0, rx0, tx1, rx1, or none."""
        return [one for one in self.interfaces if one.type == "axis"]


def make_plan(overlay: Overlay, row: KernelRow, rtl: Path = RTL) -> Plan:
    """The plan. BuildError where sources are missing, OverlayError where the manifest's firmware is
    not what it says."""
    from tools.vendor_build.firmware import words

    files = sources(row, rtl)
    code = words(overlay)
    banks = _banks(overlay, row)
    alveo = overlay.board.shell is not None
    ports = _memory_ports(overlay, banks, row.id_bits)
    span = REGISTER_BYTES if alveo else vrtbin.KERNEL_RANGE
    _check_links(overlay, row)
    facts: dict[str, int | str] = {
        "BOARD_KIND": overlay.board.kind,
        "ONCHIP_BYTES": overlay.onchip_bytes,
        "CYCLES_PER_MS": overlay.clock_hz // 1000,
        "FIRMWARE_WORDS": len(code),
        "DSP48": int(alveo),
        "DSP58": int(not alveo),
        **address_map(overlay, banks),
    }
    return Plan(
        overlay=overlay,
        row=row,
        name=alveo_container.CONTROL_KERNEL,
        part=overlay.board.part,
        sources=tuple(files),
        bank_indices=banks,
        interfaces=(
            signals.wire(CLOCK, "clock"),
            signals.wire(RESET, "reset"),
            signals.wire(INTERRUPT, "interrupt"),
            signals.registers(CONTROL, (span - 1).bit_length()),
            *ports,
            *(_streams(overlay) if row.links else ()),
        ),
        registers=tuple(_registers(overlay, banks, ports)),
        register_bytes=span,
        register_end=REGISTERS_END,
        parameters={name: facts[name] for name in row.parameters},
        firmware=code,
    )


def required_xclbin(plan: Plan) -> alveo_container.Description:
    """The container that this kernel leads to."""
    parts = alveo_container.describe(plan.overlay)
    return alveo_container.without(parts, plan.bank_indices, plan.row.links)


def required_vrtbin(plan: Plan) -> tuple[vrtbin.VrtKernel, ...]:
    """The kernels of its archive."""
    control, *links = vrtbin.expected_kernels(plan.overlay)
    targets = {vrtbin.bank_target(plan.overlay, bank) for bank in plan.bank_indices}
    kept = tuple(pair for pair in control.connections if pair[1] in targets)
    control = vrtbin.VrtKernel(
        control.name, control.base, control.bytes, control.registers, control.arguments, kept
    )
    return (control, *(links if plan.row.links else ()))


def _banks(overlay: Overlay, row: KernelRow) -> tuple[int, ...]:
    if not row.all_banks:
        return (overlay.control_bank,)
    if overlay.board.shell is not None:
        return tuple(range(len(overlay.board.banks)))
    return tuple(sorted({overlay.control_bank, *overlay.weight_banks, *overlay.spill_banks}))


def _memory_ports(overlay: Overlay, banks: tuple[int, ...], id_bits: int) -> list[Interface]:
    """The names that containers already have for them, in lower case."""
    if overlay.board.shell is not None:
        control = alveo_container.describe(overlay).kernels[0]
        named = [a.port.lower() for a in control.arguments if a.qualifier == GLOBAL]
        return [
            signals.memory(named[bank], overlay.board.banks[bank].name, id_bits) for bank in banks
        ]
    control_v80 = vrtbin.expected_kernels(overlay)[0]
    by_target = {target: port for port, target in control_v80.connections}
    targets = [vrtbin.bank_target(overlay, bank) for bank in banks]
    return [signals.memory(by_target[target], target, id_bits) for target in targets]


def _check_links(overlay: Overlay, row: KernelRow) -> None:
    found = overlay.links.port_bytes
    if row.links and found != LINK_BYTES:
        raise BuildError(
            f"overlay {overlay.name}: links of {found} B found, {LINK_BYTES} expected: "
            f"axi/link_streams.sv makes no others"
        )


def _streams(overlay: Overlay) -> list[Interface]:
    return [
        signals.stream(f"{way}{port}", way == "tx", overlay.links.port_bytes)
        for port in range(abi.PORTS)
        for way in ("tx", "rx")
    ]


def _registers(overlay: Overlay, banks: tuple[int, ...], ports: list[Interface]) -> list[Register]:
    fixed = [
        Register("GIER", abi.REG_GIE, 32, "read-write"),
        Register("IP_IER", abi.REG_IER, 32, "read-write"),
        Register("IP_ISR", abi.REG_ISR, 32, "read-write"),
    ]
    if overlay.board.shell is None:
        first, *rest = vrtbin.expected_kernels(overlay)[0].registers
        scalars = [Register(name, offset, 32, "read-write") for name, offset in rest]
        fixed = [Register(one.name.lower(), one.offset, one.bits, one.access) for one in fixed]
        return [Register(*first, 32, "read-write"), *fixed, *scalars]
    arguments = alveo_container.describe(overlay).kernels[0].arguments
    pointers = [a for a in arguments if a.qualifier == GLOBAL]
    return [
        Register("CTRL", abi.REG_AP_CTRL, 32, "read-write"),
        *fixed,
        *(
            Register(a.name, a.offset, 8 * a.size, "read-write")
            for a in arguments if a.qualifier == SCALAR
        ),
        *(
            Register(pointers[bank].name, pointers[bank].offset, 64, "read-write", port.name)
            for bank, port in zip(banks, ports, strict=True)
        ),
    ]  # fmt: skip
