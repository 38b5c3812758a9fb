"""vrtd 1.0.0's memory: 64 HBM regions of 512 MiB and DDR, allocated in granules of 64 MiB."""

from __future__ import annotations

from dataclasses import dataclass

HBM_BASE, DDR_BASE = 0x40_0000_0000, 0x600_0000_0000
REGION, GRANULE = 512 << 20, 64 << 20
HBM_REGIONS, DDR_BYTES = 64, 32 << 30
MEMORY_BYTES = DDR_BASE + DDR_BYTES
QUEUES = 256
DESIGN_QUEUE = 0  # the daemon's own, by which it loads designs
BUFFERS = QUEUES - 1
DDR, HBM_REGION, HBM_ANY = range(3)
_WORD = 1 << 64


@dataclass(frozen=True)
class Extent:
    """A buffer: device address and bytes, in whole granules."""

    physical: int
    bytes: int


class Allocator:
    """First-fit allocator, region by region."""

    def __init__(self) -> None:
        self.used: dict[int, Extent] = {}

    def take(self, kind: int, argument: int, size: int) -> Extent | None:
        """A buffer of at least `size` bytes, None if memory is used up. ValueError for an invalid
        request."""
        if kind not in (DDR, HBM_REGION, HBM_ANY) or size <= 0:
            raise ValueError(f"type {kind}, {size} B")
        if kind == HBM_REGION and argument >= HBM_REGIONS:
            raise ValueError(f"HBM region {argument}")
        needed = (size + GRANULE - 1) % _WORD // GRANULE * GRANULE  # the daemon's sum overflows
        if needed > REGION:
            raise ValueError(f"{size} B")
        if not needed:
            return None
        for start, stop in self._runs(kind, argument):
            for address in range(start, stop - needed + 1, GRANULE):
                if self._free(address, needed):
                    extent = Extent(address, needed)
                    self.used[address] = extent
                    return extent
        return None

    def give(self, physical: int) -> Extent | None:
        """Frees and returns the buffer that begins at `physical`, None if there is none."""
        return self.used.pop(physical, None)

    @staticmethod
    def _runs(kind: int, argument: int) -> list[tuple[int, int]]:
        if kind == DDR:
            ends = range(DDR_BASE, DDR_BASE + DDR_BYTES, REGION)
            return [(start, start + REGION) for start in ends]
        regions = [argument] if kind == HBM_REGION else range(HBM_REGIONS)
        return [(HBM_BASE + r * REGION, HBM_BASE + (r + 1) * REGION) for r in regions]

    def _free(self, address: int, size: int) -> bool:
        return all(
            address + size <= other.physical or other.physical + other.bytes <= address
            for other in self.used.values()
        )
