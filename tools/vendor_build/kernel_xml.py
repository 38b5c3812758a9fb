"""kernel.xml of a kernel for v++, from the description that its container has too."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lora_host.kernel_metadata import STREAM, Argument
from tools.vendor_build.plan import CONTROL, INTERRUPT, Plan, required_xclbin

VENDOR, LIBRARY, VERSION = "lora-fpga", "kernel", "1.0"
ALL_ADDRESSES = "0xFFFFFFFFFFFFFFFF"


def vlnv(plan: Plan) -> str:
    """Vendor, library, name and version of the packed IP."""
    return f"{VENDOR}:{LIBRARY}:{plan.name}:{VERSION}"


def kernel_xml(plan: Plan) -> bytes:
    """The file."""
    described = required_xclbin(plan).kernels[0]
    root = ET.Element("root", versionMajor="1", versionMinor="6")
    kernel = ET.SubElement(
        root, "kernel", name=plan.name, language="ip_c", vlnv=vlnv(plan), attributes="",
        preferredWorkGroupSizeMultiple="0", workGroupSize="1", interrupt="true",
        hwControlProtocol=described.control,
    )  # fmt: skip
    ports = ET.SubElement(kernel, "ports")
    for one in plan.interfaces:
        if one.type == "aximm":
            span = hex(plan.register_bytes) if one.name == CONTROL else ALL_ADDRESSES
            _port(
                ports, one.name, "master" if one.master else "slave", span, one.width, "addressable"
            )
        elif one.type == "axis":
            mode = "write_only" if one.master else "read_only"
            _port(ports, one.name, mode, "", one.width, "stream")
    arguments = ET.SubElement(kernel, "args")
    for argument in described.arguments:
        _argument(arguments, argument, argument.port.lower())
    for place, one in enumerate(plan.streams, len(described.arguments)):
        _argument(
            arguments,
            Argument(one.name, place, STREAM, one.name, one.width // 8, 0, "stream"),
            one.name,
        )
    if not any(one.name == INTERRUPT for one in plan.interfaces):
        kernel.set("interrupt", "false")
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _port(ports: ET.Element, name: str, mode: str, span: str, width: int, kind: str) -> None:
    facts = {
        "name": name,
        "mode": mode,
        "range": span,
        "dataWidth": str(width),
        "portType": kind,
        "base": "0x0",
    }
    if kind == "stream":
        del facts["range"], facts["base"]
    ET.SubElement(ports, "port", facts)


def _argument(arguments: ET.Element, one: Argument, port: str) -> None:
    stream = one.qualifier == STREAM
    size = one.size
    ET.SubElement(
        arguments, "arg", name=one.name, addressQualifier=str(one.qualifier), id=str(one.id),
        port=port, size=hex(size), offset=hex(0 if stream else one.offset), type=one.type,
        hostOffset="0x0", hostSize=hex(size),
    )  # fmt: skip
