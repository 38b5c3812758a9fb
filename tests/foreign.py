"""Containers of other projects: a vendor's example kernel, AuroraFlow's cores, any number of banks.
They are written by this project's writer, in software emulation's mode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid5

from lora_host import axlf
from lora_host.alveo_container import _NAMESPACE, bare_bitstream
from lora_host.boards import load_board
from lora_host.kernel_metadata import GLOBAL, SCALAR, STREAM, Argument, Kernel, write_kernels
from lora_host.xclbin import (
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

VADD_BASE = 0x1800000
CORE_BASE = 0x1A10000
_SHELL = load_board("u280").shell
assert _SHELL is not None
PLATFORM = _SHELL.card


def memories(unused: Sequence[int] = ()) -> tuple[Memory, ...]:
    """The U280's 34 banks; some of them unused."""
    hbm = [
        Memory(axlf.MEM_HBM, i not in unused, 256 << 20, i << 28, f"HBM[{i}]") for i in range(32)
    ]
    ddr = [
        Memory(axlf.MEM_DDR4, 32 + i not in unused, 16 << 30, (4 + i) << 36, f"DDR[{i}]")
        for i in range(2)
    ]
    return (*hbm, *ddr)


def vadd(banks: Sequence[int]) -> Kernel:
    """A kernel with a pointer to each of some banks."""
    pointers = [
        Argument(f"in{i}", i, GLOBAL, f"M_AXI_{i}", 8, 0x10 + 12 * i, "void*")
        for i, _ in enumerate(banks)
    ]
    size = Argument("size", len(banks), SCALAR, "S_AXI_CONTROL", 4, 0x10 + 12 * len(banks), "uint")
    return Kernel("vadd", "ap_ctrl_hs", (*pointers, size), (("vadd_1", VADD_BASE),))


def core(port: int, base: int) -> Kernel:
    """AuroraFlow's core of a port."""
    streams = tuple(
        Argument(name.lower(), i, STREAM, name, 4, 0, "stream")
        for i, name in enumerate(("rx_axis", "tx_axis"))
    )
    return Kernel(f"aurora_flow_{port}", "ap_ctrl_none", streams, ((f"aurora_{port}", base),))


def foreign_xclbin(path: Path, *, banks: Sequence[int] = (), ports: Sequence[int] = ()) -> Path:
    """Writes a container with `vadd` on `banks` (without `vadd` if empty) and cores for `ports`."""
    bases = {port: CORE_BASE + 0x10000 * port for port in ports}
    kernels = ([vadd(banks)] if banks else []) + [core(p, b) for p, b in bases.items()]
    ips = sorted(
        (
            Ip(
                axlf.IP_KERNEL,
                axlf.AP_CTRL_HS if kernel.name == "vadd" else axlf.AP_CTRL_NONE,
                kernel.instances[0][1],
                f"{kernel.name}:{kernel.instances[0][0]}",
            )
            for kernel in kernels
        ),
        key=lambda ip: ip.base,
    )
    rows = [Connection(i, 0, bank) for i, bank in enumerate(banks)]
    unused = [bank for bank in range(34) if bank not in banks]
    rom = {"vbnvName": PLATFORM}
    metadata = {"build_metadata": {"dsa": {"feature_roms": [{"featureRom": rom, **rom}]}}}
    sections = [
        (axlf.BITSTREAM, bare_bitstream(bases)),
        (axlf.MEM_TOPOLOGY, pack_memories(memories(unused))),
        (axlf.IP_LAYOUT, pack_ips(ips)),
        (axlf.CONNECTIVITY, pack_connections(rows)),
        (axlf.CLOCK_FREQ_TOPOLOGY, pack_clocks([Clock(300, axlf.CLOCK_DATA, "DATA_CLK")])),
        (axlf.BUILD_METADATA, json.dumps(metadata).encode()),
        (axlf.EMBEDDED_METADATA, write_kernels("u280", PLATFORM, 300, kernels)),
    ]
    identity = uuid5(_NAMESPACE, repr((banks, ports)))
    path.write_bytes(write_xclbin(identity, axlf.MODE_SW_EMU, PLATFORM, sections))
    return path
