"""Writes overlays/rtl/control/abi_types.sv, the numbers and commands of abi.h in SystemVerilog.

    python -m tools.rtl_package

Constants keep their names. A command is a packed structure of its 512 bits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lora_host import abi

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "csrc" / "include" / "lora" / "abi.h"
PACKAGE = ROOT / "overlays" / "rtl" / "control" / "abi_types.sv"
COMMANDS = (
    "command", "matrix", "adapter", "vector", "attention", "kv_store", "kv_commit", "gather",
    "move_rows", "checksum", "ballot",
)  # fmt: skip
RECORDS = ("list",)
PLACED = ("step_state", "row")  # of these, where fields begin
INTRODUCTION = """\
// SPDX-License-Identifier: Apache-2.0
// Made from abi.h by `python -m tools.rtl_package`; changes belong there.
package abi_types;
"""


def constants(header: str) -> dict[str, int]:
    """Name -> value of all constants that the header defines, in its order."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    text = re.sub(r"^\s*#\s*define\s+(LORA_\w+)(?=[ \t]+\S)", r"=\1=", text, flags=re.MULTILINE)
    enums = re.findall(r"\benum \w+ \{(.*?)\}", text, flags=re.DOTALL)
    members = {name for body in enums for name in re.findall(r"\b(LORA_\w+)\s*=", body)}
    names = re.findall(r"\bLORA_\w+", text)
    macros = set(re.findall(r"=(LORA_\w+)=", text))
    wanted = [name for name in dict.fromkeys(names) if name in macros | members]
    return {name: getattr(abi, name.removeprefix("LORA_")) for name in wanted}


def fields(name: str) -> Iterator[tuple[str, int, int]]:
    """(name, first bit, bits) of a structure's fields, ascending. ValueError: there is a hole."""
    kind = abi.dtype(name)
    end = 0
    for field in sorted(kind.names or (), key=lambda field: kind.fields[field][1]):
        part, offset = kind.fields[field][:2]
        if offset != end:
            raise ValueError(
                f"struct lora_{name}: {offset - end} bytes before {field} have no name"
            )
        yield field, 8 * offset, 8 * part.itemsize
        end = offset + part.itemsize
    if end != kind.itemsize:
        raise ValueError(f"struct lora_{name}: {kind.itemsize - end} bytes at its end have no name")


def structure(name: str) -> str:
    """A packed structure; its first field in memory is the last one here."""
    rows = [f"    logic [{bits - 1}:0] {field};" for field, _, bits in reversed(list(fields(name)))]
    return "\n".join(["  typedef struct packed {", *rows, f"  }} {name}_record_t;"])


def offsets(name: str) -> Iterator[str]:
    """Where fields begin, in bytes, and the size of all."""
    places = [(field, first // 8) for field, first, _ in fields(name)]
    for field, place in [*places, ("bytes", abi.dtype(name).itemsize)]:
        yield f"  parameter int {name.upper()}_{field.upper()} = {place};"


def package() -> str:
    """The whole file."""
    found = constants(HEADER.read_text(encoding="utf-8"))
    lines = [
        f"  parameter logic [31:0] {name} = 32'h{value & 0xFFFFFFFF:x};"
        for name, value in found.items()
    ]
    sizes = {name: abi.dtype(name).itemsize for name in COMMANDS}
    if set(sizes.values()) != {abi.dtype("command").itemsize}:
        raise ValueError(f"commands differ in size: {sizes}")
    parts = [*lines, *(f"\n{structure(name)}" for name in (*COMMANDS, *RECORDS))]
    parts += ["\n" + "\n".join(offsets(name)) for name in PLACED]
    return INTRODUCTION + "\n".join(parts) + "\nendpackage\n"


if __name__ == "__main__":
    PACKAGE.write_text(package(), encoding="utf-8")
