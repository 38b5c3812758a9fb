"""Reads and writes xclbin containers (axlf) without XRT. The reader checks every size: the file is
untrusted."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from . import axlf
from .errors import OverlayError
from .kernel_metadata import Kernel, read_kernels
from .regular_file import names_no_file, read_regular

MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Memory:
    """An entry of a memory topology: `bytes` at physical address `base`."""

    kind: int
    used: bool
    bytes: int
    base: int
    tag: str


@dataclass(frozen=True)
class Ip:
    """An entry of the IP layout; `name` is "kernel:instance"."""

    kind: int
    control: int
    base: int
    name: str

    @property
    def kernel(self) -> str:
        """Name of the kernel of this instance."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Connection:
    """Argument `argument` of IP `ip` uses memory `memory`; indices into their sections."""

    argument: int
    ip: int
    memory: int


@dataclass(frozen=True)
class Clock:
    """A clock of the container."""

    mhz: int
    kind: int
    name: str


@dataclass(frozen=True)
class Xclbin:
    """A container. `memories` and `connections` come from the GROUP sections if it has
    any."""

    uuid: UUID
    mode: int
    platform: str
    memories: tuple[Memory, ...] = ()
    ips: tuple[Ip, ...] = ()
    connections: tuple[Connection, ...] = ()
    clocks: tuple[Clock, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    sections: Mapping[int, bytes] = field(default_factory=dict)


def capacity(memories: Sequence[Memory]) -> int:
    """Bytes of all used memories. A group of banks, as "MBG[0:31]", lies over its banks: what
    several entries cover is counted once."""
    total = reached = 0
    for start, stop in sorted((m.base, m.base + m.bytes) for m in memories if m.used):
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


def read_xclbin(path: str | Path) -> Xclbin:
    """Reads and checks a container. OverlayError names the invalid section or field."""
    path = Path(path)
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as cause:
        raise OverlayError(
            f"{path}: container cannot be read: {cause.strerror}",
            usage=names_no_file(cause),
        ) from cause
    return parse_xclbin(data, str(path))


def parse_xclbin(data: bytes, name: str = "xclbin") -> Xclbin:
    """The container in `data`; `name` is used in messages. OverlayError as in `read_xclbin`."""
    start = axlf.TOP.size + axlf.HEADER.size
    if len(data) < start:
        raise OverlayError(f"{name}: {len(data)} B found, at least {start} B expected: no xclbin")
    if data[:8] != axlf.MAGIC:
        raise OverlayError(f"{name}: magic {data[:8]!r} found, {axlf.MAGIC!r} expected: no xclbin")
    fields = axlf.HEADER.unpack_from(data, axlf.TOP.size)
    length, mode, platform = fields[0], fields[6], fields[9]
    identity, count = fields[10], fields[12]
    if length != len(data):
        raise OverlayError(
            f"{name}: {len(data)} B found, {length} B named in its header; truncated?"
        )
    sections = _sections(data, count, start, name)
    memory_kind = _preferred(sections, axlf.GROUP_TOPOLOGY, axlf.MEM_TOPOLOGY)
    connection_kind = _preferred(sections, axlf.GROUP_CONNECTIVITY, axlf.CONNECTIVITY)
    result = Xclbin(
        uuid=UUID(bytes=identity),
        mode=mode,
        platform=_text(platform),
        memories=tuple(
            Memory(kind, bool(used), size * 1024, base, _text(tag))
            for kind, used, size, base, tag in _records(
                sections, memory_kind, axlf.COUNT_8, axlf.MEMORY, name
            )
        ),
        ips=tuple(
            Ip(kind, (bits & axlf.CONTROL_MASK) >> axlf.CONTROL_SHIFT, base, _text(label))
            for kind, bits, base, label in _records(
                sections, axlf.IP_LAYOUT, axlf.COUNT_8, axlf.IP, name
            )
        ),
        connections=tuple(
            Connection(*row)
            for row in _records(sections, connection_kind, axlf.COUNT_4, axlf.CONNECTION, name)
        ),
        clocks=tuple(
            Clock(mhz, kind, _text(label))
            for mhz, kind, label in _records(
                sections, axlf.CLOCK_FREQ_TOPOLOGY, axlf.COUNT_2, axlf.CLOCK, name
            )
        ),
        kernels=read_kernels(sections.get(axlf.EMBEDDED_METADATA, b""), name),
        sections=sections,
    )
    _check_connections(result, name)
    return result


def write_xclbin(
    uuid: UUID, mode: int, platform: str, sections: Sequence[tuple[int, bytes]]
) -> bytes:
    """The bytes of a container. It has no signature and no time stamp, so equal input gives equal
    bytes."""
    start = axlf.TOP.size + axlf.HEADER.size + len(sections) * axlf.SECTION.size
    headers, body = [], bytearray()
    for kind, content in sections:
        body += bytes(-(start + len(body)) % 8)
        label = axlf.SECTION_NAMES[kind].encode()[:15]
        headers.append(axlf.SECTION.pack(kind, label, start + len(body), len(content)))
        body += content
    header = axlf.HEADER.pack(
        start + len(body), 0, 0, 0, 2, 1, mode, 0, bytes(16), platform.encode(), uuid.bytes,
        b"", len(sections),
    )  # fmt: skip
    top = axlf.TOP.pack(axlf.MAGIC, -1, b"\xff" * 28, bytes(256), 0)
    return top + header + b"".join(headers) + bytes(body)


def pack_memories(memories: Sequence[Memory]) -> bytes:
    """A MEM_TOPOLOGY section."""
    rows = (
        axlf.MEMORY.pack(m.kind, int(m.used), m.bytes // 1024, m.base, m.tag.encode())
        for m in memories
    )
    return axlf.COUNT_8.pack(len(memories)) + b"".join(rows)


def pack_ips(ips: Sequence[Ip]) -> bytes:
    """An IP_LAYOUT section. `ips` must be sorted by base."""
    rows = (
        axlf.IP.pack(ip.kind, ip.control << axlf.CONTROL_SHIFT, ip.base, ip.name.encode())
        for ip in ips
    )
    return axlf.COUNT_8.pack(len(ips)) + b"".join(rows)


def pack_connections(rows: Sequence[Connection]) -> bytes:
    """A CONNECTIVITY section."""
    packed = (axlf.CONNECTION.pack(row.argument, row.ip, row.memory) for row in rows)
    return axlf.COUNT_4.pack(len(rows)) + b"".join(packed)


def pack_clocks(clocks: Sequence[Clock]) -> bytes:
    """A CLOCK_FREQ_TOPOLOGY section."""
    rows = (axlf.CLOCK.pack(clock.mhz, clock.kind, clock.name.encode()) for clock in clocks)
    return axlf.COUNT_2.pack(len(clocks)) + b"".join(rows)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", errors="replace")


def _sections(data: bytes, count: int, start: int, name: str) -> dict[int, bytes]:
    if count > axlf.MAX_SECTIONS or start + count * axlf.SECTION.size > len(data):
        raise OverlayError(
            f"{name}: {count} sections found in {len(data)} B, at most {axlf.MAX_SECTIONS} within "
            "the file expected"
        )
    sections: dict[int, bytes] = {}
    for index in range(count):
        kind, _, offset, size = axlf.SECTION.unpack_from(data, start + index * axlf.SECTION.size)
        if offset > len(data) or size > len(data) - offset:
            label = axlf.SECTION_NAMES.get(kind, f"of kind {kind}")
            raise OverlayError(
                f"{name}: section {label}: {size} B at {offset} found, within {len(data)} B "
                "expected"
            )
        sections.setdefault(kind, data[offset : offset + size])
    return sections


def _preferred(sections: Mapping[int, bytes], first: int, second: int) -> int:
    return first if first in sections else second


def _records(
    sections: Mapping[int, bytes], kind: int, head: struct.Struct, record: struct.Struct, name: str
) -> list[tuple[Any, ...]]:
    content = sections.get(kind)
    if content is None:
        return []
    label = axlf.SECTION_NAMES[kind]
    count = head.unpack_from(content)[0] if len(content) >= head.size else -1
    if count < 0 or head.size + count * record.size > len(content):
        raise OverlayError(
            f"{name}: section {label}: {count} entries in {len(content)} B found, "
            f"{record.size} B per entry expected"
        )
    return [record.unpack_from(content, head.size + i * record.size) for i in range(count)]


def _check_connections(container: Xclbin, name: str) -> None:
    for row in container.connections:
        if not 0 <= row.ip < len(container.ips) or not 0 <= row.memory < len(container.memories):
            raise OverlayError(
                f"{name}: connection of argument {row.argument}: IP {row.ip}, memory {row.memory} "
                f"found, IP below {len(container.ips)}, memory below {len(container.memories)} "
                "expected"
            )
