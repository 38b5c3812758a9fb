"""Contents of an overlay's Alveo container, derived from the manifest: kernels, their arguments and
connected banks, register bases, clock. The emulation's container, the linker's configuration and
the check of a user's container all use this description."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from . import abi, axlf
from .boards import Board, Shell, board_names, load_board
from .control_alone import CONTROL_KERNEL, LINK_KERNELS
from .errors import OverlayError
from .kernel_metadata import (
    GLOBAL,
    SCALAR,
    STREAM,
    Argument,
    Kernel,
    ports_of,
    write_kernels,
)
from .overlay import Overlay
from .xclbin import (
    Clock,
    Connection,
    Ip,
    Memory,
    pack_clocks,
    pack_connections,
    pack_ips,
    pack_memories,
    write_xclbin,
)

EMULATION_MARK = b"emulation: holds no bitstream"
_NAMESPACE = UUID("6f1d5c0e-9a3b-4d0c-8a51-0d7c1b1c280f")
_MEMORY_KINDS = {"hbm": axlf.MEM_HBM, "ddr": axlf.MEM_DDR4}
_CARD_DDR_BASE, _CARD_DDR_STEP = 0x40_0000_0000, 0x10_0000_0000
# Pointer registers of the memory ports. Not used: the arena records hold the bases.
_POINTERS = 0x100

# (name, register) of lora_ctrl's scalars, in order of their argument ids.
SCALARS = (
    ("operation", "OPERATION"),
    ("list_id", "LIST_ID"),
    ("block_offset", "BLOCK_OFFSET"),
    ("step", "STEP"),
    ("epoch", "EPOCH"),
    ("bank", "BANK"),
    ("offset_lo", "OFFSET_LO"),
    ("offset_hi", "OFFSET_HI"),
    ("bytes_lo", "BYTES_LO"),
    ("bytes_hi", "BYTES_HI"),
    ("control_bank", "CONTROL_BANK"),
    ("arena_count", "ARENA_COUNT"),
)


@dataclass(frozen=True)
class Description:
    """A container's contents as the manifest requires them."""

    memories: tuple[Memory, ...]
    ips: tuple[Ip, ...]
    connections: tuple[Connection, ...]
    clocks: tuple[Clock, ...]
    kernels: tuple[Kernel, ...]


def instance_name(kernel: str) -> str:
    """Name of the single instance of a kernel in our containers."""
    return f"{kernel}_1" if kernel == CONTROL_KERNEL else kernel


def shell_of(overlay: Overlay) -> Shell:
    """The shell of the overlay's board. OverlayError if the board does not use xclbin."""
    shell = overlay.board.shell
    if shell is None:
        expected = " or ".join(b.name for b in map(load_board, board_names()) if b.shell)
        raise OverlayError(
            f"overlay {overlay.name}: board {overlay.board.name} found, {expected} expected: "
            "its container is not an xclbin"
        )
    return shell


def describe(overlay: Overlay) -> Description:
    """The container of a manifest. OverlayError if the board does not use xclbin."""
    shell_of(overlay)
    memories = _memories(overlay)
    control = _control_kernel(overlay)
    links = tuple(
        _link_kernel(name, overlay.block_base[1 + i]) for i, name in enumerate(LINK_KERNELS)
    )
    kernels = (control, *links)
    pairs = [(kernel, kernel.instances[0]) for kernel in kernels]
    ips = sorted(
        (
            Ip(
                axlf.IP_KERNEL,
                axlf.AP_CTRL_HS if kernel is control else axlf.AP_CTRL_NONE,
                base,
                f"{kernel.name}:{instance}",
            )
            for kernel, (instance, base) in pairs
        ),
        key=lambda ip: ip.base,
    )
    control_ip = next(i for i, ip in enumerate(ips) if ip.kernel == CONTROL_KERNEL)
    pointers = [a for a in control.arguments if a.qualifier == GLOBAL]
    connections = tuple(Connection(a.id, control_ip, bank) for bank, a in enumerate(pointers))
    mhz = overlay.clock_hz // 1_000_000
    clocks = (
        Clock(mhz, axlf.CLOCK_DATA, "DATA_CLK"),
        Clock(mhz, axlf.CLOCK_KERNEL, "KERNEL_CLK"),
        Clock(100, axlf.CLOCK_SYSTEM, "SYSTEM_CLK"),
    )
    return Description(memories, tuple(ips), connections, clocks, kernels)


def without(parts: Description, banks: Collection[int], links: bool) -> Description:
    """Of a description, what a kernel has that leads to `banks` alone, and to no link core without
    `links`. Its arguments are numbered anew."""
    control = parts.kernels[0]
    scalars = [a for a in control.arguments if a.qualifier != GLOBAL]
    pointers = [a for a in control.arguments if a.qualifier == GLOBAL]
    kept = [
        replace(argument, id=len(scalars) + place)
        for place, argument in enumerate(pointers[bank] for bank in sorted(banks))
    ]
    kernels = (replace(control, arguments=(*scalars, *kept)), *(parts.kernels[1:] if links else ()))
    names = {kernel.name for kernel in kernels}
    ips = tuple(ip for ip in parts.ips if ip.kernel in names)
    place = next(i for i, ip in enumerate(ips) if ip.kernel == CONTROL_KERNEL)
    connections = (
        Connection(argument.id, place, bank)
        for argument, bank in zip(kept, sorted(banks), strict=True)
    )
    return replace(parts, kernels=kernels, ips=ips, connections=tuple(connections))


def emulation_container(overlay: Overlay) -> bytes:
    """An xclbin for the runtimes' emulations. Its BITSTREAM section is marked as emulation and its
    mode is software emulation, so no card loads it."""
    parts = describe(overlay)
    platform = shell_of(overlay).card
    facts = {
        "lora": {
            "overlay": overlay.name,
            "abi": overlay.abi,
            "precision": overlay.precision,
            "note": EMULATION_MARK.decode(),
        }
    }
    xml = write_kernels(overlay.board.name, platform, overlay.clock_hz // 1_000_000, parts.kernels)
    sections = [
        (axlf.BITSTREAM, EMULATION_MARK + b"\n"),
        (axlf.MEM_TOPOLOGY, pack_memories(parts.memories)),
        (axlf.IP_LAYOUT, pack_ips(parts.ips)),
        (axlf.CONNECTIVITY, pack_connections(parts.connections)),
        (axlf.CLOCK_FREQ_TOPOLOGY, pack_clocks(parts.clocks)),
        (axlf.BUILD_METADATA, _json(_build_metadata(overlay.board, platform, parts.kernels))),
        (axlf.EMBEDDED_METADATA, xml),
        (axlf.USER_METADATA, _json(facts)),
    ]
    identity = uuid5(_NAMESPACE, repr([(kind, content) for kind, content in sections]))
    return write_xclbin(identity, axlf.MODE_SW_EMU, platform, sections)


def bare_bitstream(links: Mapping[int, int]) -> bytes:
    """BITSTREAM section of a container without an overlay: the emulated board then has link cores
    at the bases `links`, by port, and no lora_ctrl."""
    return EMULATION_MARK + b"\n" + _json({"links": {str(k): base for k, base in links.items()}})


def register_bases(bitstream: bytes) -> tuple[int | None, ...] | None:
    """Bases of lora_ctrl and the link cores in a BITSTREAM section, None for each that is absent.
    Returns None if the overlay defines them. OverlayError if it is not an emulation's section."""
    mark, _, rest = bitstream.rstrip(b"\0").partition(b"\n")
    if mark != EMULATION_MARK:
        raise OverlayError(f"bitstream: {bitstream[:16]!r} found, {EMULATION_MARK!r} expected")
    if not rest.strip():
        return None
    try:
        links = json.loads(rest)["links"]
        named = {int(port): int(base) for port, base in links.items()}
    except (
        ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError
    ) as cause:  # fmt: skip
        raise OverlayError(f"bitstream: its register bases cannot be read: {cause}") from cause
    return (None, *(named.get(port) for port in range(abi.PORTS)))


def _memories(overlay: Overlay) -> tuple[Memory, ...]:
    memories, hbm, ddr = [], 0, _CARD_DDR_BASE
    for bank in overlay.board.banks:
        base = hbm if bank.kind == "hbm" else ddr
        memories.append(Memory(_MEMORY_KINDS[bank.kind], True, bank.capacity, base, bank.name))
        if bank.kind == "hbm":
            hbm += bank.capacity
        else:
            ddr += _CARD_DDR_STEP
    return tuple(memories)


def _control_kernel(overlay: Overlay) -> Kernel:
    scalars = [
        Argument(name, i, SCALAR, "S_AXI_CONTROL", 4, int(getattr(abi, f"REG_{register}")), "uint")
        for i, (name, register) in enumerate(SCALARS)
    ]
    pointers = [
        Argument(
            bank.name.lower().replace("[", "_").rstrip("]"),
            len(scalars) + i,
            GLOBAL,
            f"M_AXI_{bank.name.replace('[', '_').rstrip(']')}",
            8,
            _POINTERS + 8 * i,
            "void*",
        )
        for i, bank in enumerate(overlay.board.banks)
    ]
    instance = (instance_name(CONTROL_KERNEL), overlay.block_base[0])
    return Kernel(CONTROL_KERNEL, "ap_ctrl_hs", (*scalars, *pointers), (instance,))


def _link_kernel(name: str, base: int) -> Kernel:
    streams = tuple(
        Argument(port.lower(), i, STREAM, port, 4, 0, "stream")
        for i, port in enumerate(("RX", "TX"))
    )
    return Kernel(name, "ap_ctrl_none", streams, ((instance_name(name), base),))


def _build_metadata(board: Board, platform: str, kernels: Sequence[Kernel]) -> dict[str, object]:
    """What the vendor's xclbinutil shows of a container. It writes below `packaged_by` and
    `generated_by`, so both are objects; it reads values as text."""
    rom = {"vbnvName": platform}
    vendor, board_id, name, version = _shell_words(platform)
    maker = {"name": "lora overlay build", "version": "1", "time_stamp": "none"}
    dsa = {
        "vendor": vendor,
        "board_id": board_id,
        "name": name,
        "version_major": version,
        "version_minor": "0",
        "generated_by": maker,
        "board": {"part": board.part, "vendor": "xilinx.com", "name": board.name},
        "feature_roms": [{"featureRom": rom, **rom}],
    }
    region = {"name": "OCL_REGION_0", "kernels": [_kernel_facts(kernel) for kernel in kernels]}
    xclbin = {"generated_by": maker, "packaged_by": maker, "user_regions": [region]}
    return {"build_metadata": {"schema_version": "1.0", "dsa": dsa, "xclbin": xclbin}}


def _shell_words(platform: str) -> tuple[str, str, str, str]:
    """Vendor, board, name and version of xilinx_u280_gen3x16_xdma_base_1, as the schema has it."""
    vendor, board, rest = platform.split("_", 2)
    name, _, version = rest.rpartition("_")
    return vendor, board, name, version


def _kernel_facts(kernel: Kernel) -> dict[str, object]:
    return {
        "name": kernel.name,
        "ports": [
            {
                "name": port.name,
                "mode": port.mode,
                "range": port.range,
                "data_width": port.data_width,
                "port_type": port.type,
            }
            for port in ports_of(kernel)
        ],
        "arguments": [
            {"name": a.name, "type": a.type, "port": a.port, "offset": hex(a.offset)}
            for a in kernel.arguments
        ],
        "instances": [{"name": name} for name, _ in kernel.instances],
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()
