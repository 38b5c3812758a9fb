"""EMBEDDED_METADATA of an xclbin: XML with kernels, their arguments and instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from .bounded_xml import parse_xml
from .errors import OverlayError

SCALAR, GLOBAL, STREAM = 0, 1, 4  # addressQualifier
MAX_XML_BYTES = 16 << 20
REGISTER_BYTES = 0x10000  # of a kernel, in the shell's map


@dataclass(frozen=True)
class Argument:
    """A kernel's argument. `offset` and `size` of its registers are bytes. `port`: its port's name,
    or ""."""

    name: str
    id: int
    qualifier: int
    port: str
    size: int
    offset: int
    type: str


@dataclass(frozen=True)
class Port:
    """A kernel's port, as written: range in bytes, width in bits."""

    name: str
    mode: str
    range: str
    data_width: str
    type: str


@dataclass(frozen=True)
class Kernel:
    """A kernel with its arguments and (instance, base) pairs; `control` as written in the XML."""

    name: str
    control: str
    arguments: tuple[Argument, ...]
    instances: tuple[tuple[str, int], ...]


def read_kernels(xml: bytes, name: str) -> tuple[Kernel, ...]:
    """Kernels of the section; () if it is empty. OverlayError if it is malformed."""
    text = xml.rstrip(b"\0 \r\n")
    if not text:
        return ()
    if len(text) > MAX_XML_BYTES:
        raise OverlayError(
            f"{name}: EMBEDDED_METADATA: {len(text)} B found, at most {MAX_XML_BYTES} B expected"
        )
    try:
        root = parse_xml(text)
        return tuple(_kernel(node) for node in root.iter("kernel"))
    except (ValueError, LookupError) as cause:  # a missing attribute, or no number in one
        raise OverlayError(f"{name}: EMBEDDED_METADATA cannot be read: {cause}") from cause


def _kernel(node: ElementTree.Element) -> Kernel:
    arguments = tuple(
        Argument(
            name=arg.attrib["name"],
            id=int(arg.get("id") or -1),
            qualifier=int(arg.get("addressQualifier", "0")),
            port=arg.get("port", ""),
            size=int(arg.get("size", "0"), 0),
            offset=int(arg.get("offset", "0"), 0),
            type=arg.get("type", ""),
        )
        for arg in node.findall("arg")
    )
    instances = []
    for instance in node.findall("instance"):
        remap = instance.find("addrRemap")
        base = int(remap.attrib["base"], 0) if remap is not None else 0
        instances.append((instance.attrib["name"], base))
    return Kernel(
        node.attrib["name"], node.get("hwControlProtocol", ""), arguments, tuple(instances)
    )


def write_kernels(board: str, platform: str, clock_mhz: int, kernels: Sequence[Kernel]) -> bytes:
    """The section for these kernels on `board`, in XRT's format."""
    project = ElementTree.Element("project", name="lora")
    shell = ElementTree.SubElement(
        project, "platform", vendor="xilinx", boardid=board, name=platform
    )
    device = ElementTree.SubElement(shell, "device", name="fpga0")
    core = ElementTree.SubElement(
        device, "core", name="OCL_REGION_0", target="csim", type="clc_region"
    )
    ElementTree.SubElement(core, "kernelClocks").append(
        ElementTree.Element("clock", port="KERNEL_CLK", frequency=f"{clock_mhz}.0MHz")
    )
    for kernel in kernels:
        core.append(_element(kernel))
    text: bytes = ElementTree.tostring(project, encoding="utf-8", xml_declaration=True)
    return text


def ports_of(kernel: Kernel) -> list[Port]:
    """The ports that the kernel's arguments use, by name."""
    ports = []
    for name in sorted({a.port for a in kernel.arguments if a.port}):
        slave = name == "S_AXI_CONTROL"
        mode, span = ("slave", f"{REGISTER_BYTES:#x}") if slave else ("master", "0xFFFFFFFF")
        ports.append(Port(name, mode, span, "32" if slave else "512", "addressable"))
    return ports


def _element(kernel: Kernel) -> ElementTree.Element:
    node = ElementTree.Element(
        "kernel", name=kernel.name, language="ip_c", hwControlProtocol=kernel.control
    )
    for port in ports_of(kernel):
        ElementTree.SubElement(
            node, "port", name=port.name, mode=port.mode, range=port.range,
            dataWidth=port.data_width, portType=port.type, base="0x0",
        )  # fmt: skip
    for argument in kernel.arguments:
        ElementTree.SubElement(
            node, "arg", name=argument.name, addressQualifier=str(argument.qualifier),
            id=str(argument.id) if argument.id >= 0 else "", port=argument.port,
            size=hex(argument.size), offset=hex(argument.offset), hostOffset="0x0",
            hostSize=hex(argument.size), type=argument.type,
        )  # fmt: skip
    for instance, base in kernel.instances:
        element = ElementTree.SubElement(node, "instance", name=instance)
        ElementTree.SubElement(
            element, "addrRemap", base=hex(base), range=hex(REGISTER_BYTES), port="S_AXI_CONTROL"
        )
    return node
