"""Compares a user's container with the manifest of its overlay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from . import axlf
from .alveo_container import EMULATION_MARK, Description, describe
from .control_alone import refuse_control_alone
from .errors import OverlayError
from .kernel_metadata import GLOBAL
from .overlay import Overlay
from .xclbin import Ip, Xclbin


@dataclass(frozen=True)
class Difference:
    """One difference between a container and its manifest."""

    what: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.what}: {self.found} found, {self.expected} expected"


def check_container(container: Xclbin, overlay: Overlay, name: str) -> None:
    """OverlayError that names the first difference and the number of others, or says that the
    container holds the control alone."""
    found = differences(container, overlay)
    if found:
        refuse_control_alone(_ips(container), name)
        more = f" (and {len(found) - 1} more: lora inspect {name})" if len(found) > 1 else ""
        raise OverlayError(
            f"{name}: {found[0]}{more}; take the container that belongs to {overlay.name}"
        )


def differences(
    container: Xclbin, overlay: Overlay, required: Description | None = None
) -> list[Difference]:
    """Kernels, arguments, banks, clocks and ABI, compared with the manifest, or with `required`, a
    part of it."""
    required = required or describe(overlay)
    return [
        *_banks(container, required),
        *_kernels(container, required),
        *_arguments(container, required),
        *_connections(container, required),
        *_clock(container, overlay),
        *_facts(container, overlay),
    ]


def is_emulation(container: Xclbin) -> bool:
    """Whether the container is marked as holding no bitstream."""
    return container.sections.get(axlf.BITSTREAM, b"").startswith(EMULATION_MARK)


def facts_of(container: Xclbin) -> dict[str, object]:
    """The project's entry in USER_METADATA; {} if there is none."""
    try:
        content = json.loads(container.sections.get(axlf.USER_METADATA, b"{}"))
    except (ValueError, RecursionError):
        return {}
    facts = content.get("lora") if isinstance(content, dict) else None
    return facts if isinstance(facts, dict) else {}


def _mib(value: int) -> str:
    return f"{value / (1 << 20):.0f} MiB"


def _banks(container: Xclbin, required: Description) -> Iterator[Difference]:
    found = {memory.tag: memory for memory in container.memories}
    for memory in required.memories:
        other = found.get(memory.tag)
        if other is None or not other.used:
            yield Difference(
                f"bank {memory.tag}", "unused" if other else "none", _mib(memory.bytes)
            )
        elif other.kind != memory.kind or other.bytes < memory.bytes:
            kind = axlf.MEMORY_KINDS.get(other.kind, f"kind {other.kind}")
            expected = f"{axlf.MEMORY_KINDS[memory.kind]} {_mib(memory.bytes)}"
            yield Difference(f"bank {memory.tag}", f"{kind} {_mib(other.bytes)}", expected)


def _ips(container: Xclbin) -> dict[str, Ip]:
    return {ip.kernel: ip for ip in container.ips if ip.kind == axlf.IP_KERNEL}


def _kernels(container: Xclbin, required: Description) -> Iterator[Difference]:
    found = _ips(container)
    for ip in required.ips:
        other = found.get(ip.kernel)
        if other is None:
            yield Difference(f"kernel {ip.kernel}", "none", f"one at {ip.base:#x}")
            continue
        if other.base != ip.base:
            yield Difference(f"kernel {ip.kernel}'s base", f"{other.base:#x}", f"{ip.base:#x}")
        if other.control != ip.control:
            names = axlf.CONTROL_NAMES
            label = names.get(other.control, str(other.control))
            yield Difference(f"kernel {ip.kernel}'s control", label, names[ip.control])


def _arguments(container: Xclbin, required: Description) -> Iterator[Difference]:
    found = {kernel.name: kernel for kernel in container.kernels}
    for kernel in required.kernels:
        other = found.get(kernel.name)
        if other is None:
            continue  # no metadata, or reported by _kernels
        have = {argument.name: argument for argument in other.arguments}
        for argument in kernel.arguments:
            label = f"argument {argument.name} of {kernel.name}"
            got = have.get(argument.name)
            if got is None:
                yield Difference(label, "none", f"one at {argument.offset:#x}")
            elif (got.offset, got.qualifier) != (argument.offset, argument.qualifier):
                yield Difference(
                    label,
                    f"qualifier {got.qualifier} at {got.offset:#x}",
                    f"qualifier {argument.qualifier} at {argument.offset:#x}",
                )


def _connections(container: Xclbin, required: Description) -> Iterator[Difference]:
    pointers = {
        a.id: a.name for k in required.kernels for a in k.arguments if a.qualifier == GLOBAL
    }
    found = {
        (container.ips[row.ip].kernel, row.argument, container.memories[row.memory].tag)
        for row in container.connections
    }
    for row in required.connections:
        kernel, tag = required.ips[row.ip].kernel, required.memories[row.memory].tag
        if (kernel, row.argument, tag) not in found:
            tags = sorted(t for k, a, t in found if (k, a) == (kernel, row.argument))
            label = f"bank of argument {pointers[row.argument]} of {kernel}"
            yield Difference(label, ", ".join(tags) or "none", tag)


def _clock(container: Xclbin, overlay: Overlay) -> Iterator[Difference]:
    expected = overlay.clock_hz // 1_000_000
    found = [clock.mhz for clock in container.clocks if clock.kind == axlf.CLOCK_DATA]
    if found != [expected]:
        label = ", ".join(f"{mhz} MHz" for mhz in found) or "none"
        yield Difference("data clock", label, f"{expected} MHz")


def _facts(container: Xclbin, overlay: Overlay) -> Iterator[Difference]:
    facts = facts_of(container)
    for key, expected in (("abi", overlay.abi), ("precision", overlay.precision)):
        if key in facts and facts[key] != expected:
            yield Difference(key.upper() if key == "abi" else key, str(facts[key]), str(expected))
