"""Where banks lie in the shell's address map: which lines each memory port of a kernel leads to."""

from __future__ import annotations

from lora_host import abi, alveo_container
from lora_host.overlay import Overlay
from tools.vendor_build.errors import BuildError

LINE = abi.LINE_BYTES
ADDRESS_BITS, SPAN_BITS = 42, 6  # of a line, of log2 of a bank's lines (axi/line_ports.sv)
# Of SLASH's shell, as csrc/transports/slash/transport_slash.h has them.
V80_HBM_BASE, V80_DDR_BASE = 0x40_0000_0000, 0x600_0000_0000


def bank_ranges(overlay: Overlay) -> list[tuple[int, int]]:
    """(address, bytes) of each bank of a board."""
    if overlay.board.shell is not None:
        return [(one.base, one.bytes) for one in alveo_container.describe(overlay).memories]
    found, base = [], {"hbm": V80_HBM_BASE, "ddr": V80_DDR_BASE}
    for bank in overlay.board.banks:
        found.append((base[bank.kind], bank.capacity))
        base[bank.kind] += bank.capacity
    return found


def address_map(overlay: Overlay, banks: tuple[int, ...]) -> dict[str, int | str]:
    """Parameters of a kernel with ports to `banks`. BuildError for a bank that does not begin at a
    multiple of its size, a power of two: a port is found by the upper bits of an address."""
    ranges = bank_ranges(overlay)
    firsts = spans = 0
    for place, bank in enumerate(banks):
        base, size = ranges[bank]
        if size & (size - 1) or base % size:
            raise BuildError(
                f"board {overlay.board.name}: bank {overlay.board.banks[bank].name} at {base:#x} "
                f"with {size:#x} B found; a power of two at a multiple of it expected"
            )
        firsts |= base // LINE << ADDRESS_BITS * place
        spans |= (size // LINE).bit_length() - 1 << SPAN_BITS * place
    return {
        "PORTS": len(banks),
        "CONTROL_PORT": banks.index(overlay.control_bank),
        "FIRST_LINES": f"{ADDRESS_BITS * len(banks)}'h{firsts:x}",
        "SPAN_BITS": f"{SPAN_BITS * len(banks)}'h{spans:x}",
    }
