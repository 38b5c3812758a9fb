"""The V80's overlay archive (vrtbin): a tar of system_map.xml and PDIs. SLASH's linker packs it
with gzip, its PDIs in a folder, with one of the service layer where the design uses the network.
The flat form has design.pdi. Reads archives, writes them from a manifest, and checks an archive
against a manifest.

    python -m lora_host.vrtbin OVERLAY     writes the emulation's archive that the manifest names

A written archive holds no bitstream. Its design is a marker with the firmware image, which only the
mock server's emulated board can load."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from .bounded_xml import XmlFault, parse_xml
from .control_alone import CONTROL_KERNEL, LINK_KERNELS, refuse_control_alone
from .errors import OverlayError
from .gzip_file import GZIP, LIMIT, GzipFault, unpack
from .overlay import Overlay, load_overlay
from .regular_file import names_no_file, read_regular

MARK = b"emulation: holds no bitstream\n"
SERVICE_MARK = MARK + b"service layer\n"  # the emulation's PDI of a service layer
MAP_NAME, DESIGN_NAME = "system_map.xml", "design.pdi"
_KINDS = (".pdi", ".xml", ".json")  # others than PDIs and the map are reports, which nobody reads
PLATFORMS = ("Hardware", "Emulation", "Simulation")
KERNEL_RANGE = 0x10000
# Scalars of lora_ctrl as registers: name, offset (lora/abi.h), 32-bit words.
SCALARS = (
    ("operation", 0x10, 1),
    ("list_id", 0x14, 1),
    ("block_offset", 0x18, 1),
    ("step", 0x1C, 1),
    ("epoch", 0x20, 1),
    ("bank", 0x24, 1),
    ("offset", 0x28, 2),  # a 64-bit argument is two words
    ("bytes", 0x30, 2),
    ("control_bank", 0x38, 1),
    ("arena_count", 0x3C, 1),
)
_MAX_MEMBERS, _MAX_MEMBER, _MAX_MAP, _MAX_DESIGNS, _MAX_NAME = 64, 1 << 30, 1 << 22, 8, 159


@dataclass(frozen=True)
class VrtKernel:
    """A kernel of the system map. Connections: port name -> bank, e.g. "HBM3" or "DDR0"."""

    name: str
    base: int
    bytes: int
    registers: tuple[tuple[str, int], ...]
    arguments: tuple[str, ...]
    connections: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Vrtbin:
    """An archive that was read. `designs`: the PDIs by name, in the order in which they are loaded:
    design.pdi first, then by name. The kernels' is design.pdi or else the last."""

    platform: str
    clock_hz: int
    kernels: tuple[VrtKernel, ...]
    designs: dict[str, bytes]

    @property
    def design(self) -> bytes:
        """The PDI with the kernels."""
        return self.designs.get(DESIGN_NAME, next(reversed(self.designs.values())))

    @property
    def emulation(self) -> bool:
        """Whether the design is the emulation's and holds no bitstream."""
        return self.design.startswith(MARK)


@dataclass(frozen=True)
class EmulationDesign:
    """The design of an emulated board: activation buffer in bytes, register bases of lora_ctrl and
    both links, firmware image with its header."""

    board_kind: int
    abi: int
    onchip_bytes: int
    block_base: tuple[int, int, int]
    image: bytes


# --- reading ---


def read_vrtbin(path: str | Path) -> Vrtbin:
    """Reads and checks an archive. OverlayError names the file and the invalid member or field."""
    path = Path(path)
    try:
        data = read_regular(path, LIMIT)
    except OSError as cause:
        raise OverlayError(
            f"{path}: vrtbin cannot be read: {cause.strerror}",
            usage=names_no_file(cause),
        ) from cause
    members = _members(path, data)
    names = [name for name in members if name.lower().endswith(".pdi")]
    for what, there in ((MAP_NAME, MAP_NAME in members), ("design (*.pdi)", names)):
        if not there:
            raise OverlayError(f"{path}: no {what} among {sorted(members) or 'nothing'}")
    if len(names) > _MAX_DESIGNS:
        raise OverlayError(f"{path}: {len(names)} designs found, at most {_MAX_DESIGNS} expected")
    names.sort(key=lambda name: (name != DESIGN_NAME, name))
    designs = {name: members[name] for name in names}
    platform, clock_hz, kernels = _read_map(path, members[MAP_NAME])
    return Vrtbin(platform, clock_hz, kernels, designs)


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(GZIP):
        return data
    try:
        return b"".join(unpack(io.BytesIO(data), len(data)))
    except GzipFault as cause:
        raise OverlayError(f"{path}: {cause}") from cause


def _members(path: Path, data: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(path, data)), mode="r:") as archive:
            for entry in archive:
                name = entry.name.removeprefix("./")
                if entry.isdir():
                    continue
                _check_member(path, entry, name, members)
                stream = archive.extractfile(entry)
                members[name] = stream.read() if stream is not None else b""
                if len(members[name]) != entry.size:
                    raise OverlayError(f"{path}: member {name} is cut off")
    except (
        tarfile.TarError,
        ValueError,
        LookupError,
        OverflowError,
        OSError,
        RecursionError,
    ) as cause:
        # tarfile raises these for numbers and sizes in extended headers.
        raise OverlayError(f"{path}: not a tar archive: {cause}") from cause
    return members


def _check_member(path: Path, entry: tarfile.TarInfo, name: str, members: dict[str, bytes]) -> None:
    where = f"{path}: member {name[:60]!r}"
    if not entry.isreg() or entry.issparse():  # a sparse one has more bytes than the archive
        raise OverlayError(f"{where}: not a plain file; a vrtbin has only plain files")
    if not _harmless(name):
        raise OverlayError(f"{where}: a path that leaves the archive; a plain name expected")
    if not name.lower().endswith(_KINDS):
        raise OverlayError(f"{where}: {MAP_NAME}, *.pdi and reports in XML or JSON expected")
    if name in members:
        raise OverlayError(f"{where}: found twice")
    limit = _MAX_MAP if name == MAP_NAME else _MAX_MEMBER
    if not 0 <= entry.size <= limit or len(members) >= _MAX_MEMBERS:
        raise OverlayError(
            f"{where}: {entry.size} B, {len(members)} members before it; at most {limit} B and "
            f"{_MAX_MEMBERS} members expected"
        )


def _harmless(name: str) -> bool:
    """A relative path without a part that begins with a dot, of characters an error may print."""
    plain = name.isascii() and name.isprintable() and "\\" not in name
    hidden = name.startswith("/") or any(part.startswith(".") for part in name.split("/"))
    return plain and not hidden and 0 < len(name) <= _MAX_NAME


def _read_map(path: Path, text: bytes) -> tuple[str, int, tuple[VrtKernel, ...]]:
    try:
        root = parse_xml(text)
    except XmlFault as cause:
        raise OverlayError(f"{path}: {MAP_NAME}: not XML: {cause}") from cause
    platform = _text(path, root, "Platform")
    if platform not in PLATFORMS:
        raise OverlayError(
            f"{path}: {MAP_NAME}: Platform {platform!r} found, {', '.join(PLATFORMS)} expected"
        )
    kernels = tuple(_read_kernel(path, node) for node in root.iter("Kernel"))
    return platform, _number(path, _text(path, root, "ClockFrequency"), "ClockFrequency"), kernels


def _read_kernel(path: Path, node: ET.Element) -> VrtKernel:
    name = _text(path, node, "Name")
    rows = [row for row in node.iter("register")]
    registers = tuple(
        (row.get("name", ""), _number(path, row.get("offset", ""), f"{name} register"))
        for row in rows
    )
    arguments = tuple(row.get("name", "") for row in _arguments(node))
    connections = tuple(
        (row.get("port", ""), row.get("target", "")) for row in node.iter("connection")
    )
    base = _number(path, _text(path, node, "BaseAddress"), f"{name} BaseAddress")
    size = _number(path, _text(path, node, "Range"), f"{name} Range")
    return VrtKernel(name, base, size, registers, arguments, connections)


def _arguments(node: ET.Element) -> list[ET.Element]:
    """SLASH's linker writes <functional_args><arg/>, the emulation's archive <functional_arg/>."""
    return [*node.iter("functional_arg"), *(a for f in node.iter("functional_args") for a in f)]


def _text(path: Path, node: ET.Element, name: str) -> str:
    found = node.findtext(name)
    if found is None or not found.strip():
        raise OverlayError(f"{path}: {MAP_NAME}: {name} is missing in <{node.tag}>")
    return found.strip()


def _number(path: Path, text: str, what: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 64:
        raise OverlayError(f"{path}: {MAP_NAME}: {what}: {text[:40]!r} found, a number expected")
    return value


def emulation_design(pdi: bytes) -> EmulationDesign:
    """The emulation's design from its PDI. OverlayError if it is another design."""
    line, newline, image = pdi.removeprefix(MARK).partition(b"\n")
    if not pdi.startswith(MARK) or not newline or len(line) > 4096:
        raise OverlayError(f"{DESIGN_NAME}: not the emulation's: its first line is not {MARK!r}")
    try:
        facts = json.loads(line)
        kind, abi, onchip = (_whole(facts[key], 32) for key in ("board", "abi", "onchip_bytes"))
        control, link0, link1 = (_whole(base, 64) for base in facts["block_base"])
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise OverlayError(f"{DESIGN_NAME}: facts of the emulation: {cause!r:.200}") from cause
    return EmulationDesign(kind, abi, onchip, (control, link0, link1), image)


def _whole(value: object, bits: int) -> int:
    if type(value) is not int or value < 0 or value.bit_length() > bits:
        raise ValueError(f"{value!r:.40} found, a number of {bits} bits expected")
    return value


# --- writing ---


def bank_target(overlay: Overlay, bank: int) -> str:
    """Name of a bank in the system map: "HBM3", "DDR0"."""
    return overlay.board.banks[bank].name.replace("[", "").replace("]", "")


def expected_kernels(overlay: Overlay) -> tuple[VrtKernel, ...]:
    """The kernels of this manifest's container."""
    banks = sorted({overlay.control_bank, *overlay.weight_banks, *overlay.spill_banks})
    registers = [("ap_ctrl", 0)]
    for name, offset, words in SCALARS:
        if words == 1:
            registers.append((name, offset))
        else:
            registers += [(f"{name}_{word + 1}", offset + 4 * word) for word in range(words)]
    control = VrtKernel(
        CONTROL_KERNEL,
        overlay.block_base[0],
        KERNEL_RANGE,
        tuple(registers),
        tuple(name for name, _, _ in SCALARS),
        tuple((f"m_axi_{bank_target(overlay, b).lower()}", bank_target(overlay, b)) for b in banks),
    )
    links = (
        VrtKernel(name, base, KERNEL_RANGE, (), (), ())
        for name, base in zip(LINK_KERNELS, overlay.block_base[1:], strict=True)
    )
    return (control, *links)


def _system_map(overlay: Overlay) -> bytes:
    root = ET.Element("SystemMap")
    root.append(ET.Comment(" " + MARK.decode().strip() + " "))
    ET.SubElement(root, "Platform").text = "Emulation"
    ET.SubElement(root, "ClockFrequency").text = str(overlay.clock_hz)
    for kernel in expected_kernels(overlay):
        node = ET.SubElement(root, "Kernel")
        ET.SubElement(node, "Name").text = kernel.name
        ET.SubElement(node, "BaseAddress").text = f"{kernel.base:#x}"
        ET.SubElement(node, "Range").text = f"{kernel.bytes:#x}"
        for name, offset in kernel.registers:
            ET.SubElement(node, "register", name=name, offset=f"{offset:#x}", width="32")
        for index, name in enumerate(kernel.arguments):
            ET.SubElement(node, "functional_arg", idx=str(index), name=name)
        for port, target in kernel.connections:
            ET.SubElement(node, "connection", port=port, target=target)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8")) + b"\n"


def _design(overlay: Overlay) -> bytes:
    facts = {
        "board": overlay.board.kind,
        "abi": overlay.abi,
        "onchip_bytes": overlay.onchip_bytes,
        "block_base": list(overlay.block_base),
    }
    return MARK + json.dumps(facts).encode() + b"\n" + overlay.image


def write_vrtbin(overlay: Overlay) -> bytes:
    """The emulation's archive for a manifest. Equal manifests and images give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in ((MAP_NAME, _system_map(overlay)), (DESIGN_NAME, _design(overlay))):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


# --- checking ---


def check_vrtbin(vrtbin: Vrtbin, overlay: Overlay, name: str) -> None:
    """OverlayError, with found and expected values, if an archive does not match its manifest."""
    found = differences(vrtbin, overlay)
    if found:
        refuse_control_alone([kernel.name for kernel in vrtbin.kernels], name)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise OverlayError(
            f"{name}: {found[0]}{more}; take the vrtbin that belongs to {overlay.name}"
        )


def differences(
    vrtbin: Vrtbin, overlay: Overlay, kernels: tuple[VrtKernel, ...] | None = None
) -> list[str]:
    """The differences of an archive from its manifest, or from `kernels`, a part of it, one line
    each."""
    lines: list[str] = []

    def differ(what: str, found: object, expected: object) -> None:
        if found != expected:
            lines.append(f"{what} {found} found, {expected} expected")

    differ("clock", f"{vrtbin.clock_hz} Hz", f"{overlay.clock_hz} Hz")
    there = {kernel.name: kernel for kernel in vrtbin.kernels}
    for kernel in kernels or expected_kernels(overlay):
        if kernel.name not in there:
            lines.append(f"kernel {kernel.name} is missing among {sorted(there)}")
            continue
        found = there[kernel.name]
        differ(f"kernel {kernel.name}: base", f"{found.base:#x}", f"{kernel.base:#x}")
        for register in kernel.registers:
            if register not in found.registers:
                lines.append(f"kernel {kernel.name}: no register {register[0]} at {register[1]:#x}")
        reached = {target for _, target in found.connections}
        for _, target in kernel.connections:
            if target not in reached:
                lines.append(f"kernel {kernel.name}: bank {target} is not connected")
    if vrtbin.emulation:
        design = emulation_design(vrtbin.design)
        differ("ABI", design.abi, overlay.abi)
        differ("board kind", f"{design.board_kind:#x}", f"{overlay.board.kind:#x}")
        if design.image != overlay.image:
            lines.append("another firmware image than the overlay's found")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    names = sys.argv[1:] if arguments is None else arguments
    for name in names:
        overlay = load_overlay(name)
        if overlay.container is None:
            sys.stderr.write(f"{name}: the manifest names no container\n")
            return 1
        overlay.container.write_bytes(write_vrtbin(overlay))
    return 0


if __name__ == "__main__":
    sys.exit(main())
