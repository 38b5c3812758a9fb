"""Writes first inputs of the C targets that read files and answers, which C would build at length:
`python -m tests.fuzz.seeds`. Those of the others: `make -C tests/fuzz/c seeds`, `Target.seeds`."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from pathlib import Path

from lora_host import abi, axlf
from lora_host.overlay import load_overlay
from lora_host.xclbin import read_xclbin, write_xclbin
from tests.fuzz.corpora import CORPORA

ARENA = 1 << 30
HBM_3 = 0x4000000000 + 3 * ARENA
FD = 16
INFO = struct.pack("<128s32s4H", b"v80", b"0000:21:00.0", 0x10EE, 0x50B6, 0x10EE, 14)
FOUND = (0, struct.pack("<I", 0)), (0, INFO)
BAR = (0, struct.pack("<I4BQQ", 24, 0, 1, 1, 0, 1 << 40, 1 << 16)), (FD, struct.pack("<Q", 1 << 16))
BUFFER = (FD, struct.pack("<QQ", 64 << 20, HBM_3))
CLOSED = (0, b"\0")
SENSOR = struct.pack("<64sBBbBi", b"hbm_temp", 1, 1, -1, 0, 415)
VRTD = {
    "devices": (0, ((0, struct.pack("<I", 1)), (0, INFO + b"\x02\x00"))),
    "sensors": (1, (*FOUND, (0, struct.pack("<I", 1) + SENSOR))),
    "clock": (2, (*FOUND, (0, struct.pack("<I", 250_000_000)))),
    "board": (3 | 8, (*FOUND, *BAR, BUFFER, CLOSED)),
    "full": (3, (*FOUND, (6, b""), BUFFER, CLOSED)),
}


def vrtd() -> dict[str, bytes]:
    """What is asked, and the daemon's answers."""
    return {
        name: bytes([asked])
        + b"".join(struct.pack("<BH", manner, len(body)) + body for manner, body in answers)
        for name, (asked, answers) in VRTD.items()
    }


def archive() -> dict[str, bytes]:
    """A small archive as tar writes it, whose sums the target makes right again."""
    found = {}
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as file:
            for member in ("system_map.xml", "images/\u00e9" * (form == tarfile.PAX_FORMAT)
                           + "service.pdi", "design.pdi"):  # fmt: skip
                entry = tarfile.TarInfo(member)
                entry.size, entry.mtime = 7, 1_700_000_000.25  # type: ignore[assignment]
                file.addfile(entry, io.BytesIO(b"content"))
        found[name] = b"\xff" + buffer.getvalue().rstrip(b"\0") + bytes(512)
    return found


def xclbin() -> dict[str, bytes]:
    """The tables that the host library reads."""
    overlay = load_overlay("lora_f_u280")
    assert overlay.container is not None
    whole = read_xclbin(overlay.container)
    kinds = (axlf.MEM_TOPOLOGY, axlf.IP_LAYOUT, axlf.CONNECTIVITY)
    tables = [(kind, whole.sections[kind]) for kind in kinds]
    return {"tables": write_xclbin(whole.uuid, whole.mode, whole.platform, tables)}


def boardd() -> dict[str, bytes]:
    """A host's messages to a daemon: a manner, then kind, bytes and body of each."""
    code = bytes(8)
    facts = (abi.IMAGE_MAGIC, 32, abi.ABI_NUMBER, abi.BOARD_U280, len(code), zlib.crc32(code))
    image = struct.pack("<8I", *facts, 0, 0) + code
    program = struct.pack("<4I4Q", abi.BOARD_U280, abi.ABI_NUMBER, 1 << 20, 0, 0, 0, 0, 0) + image
    ranges = struct.pack("<2I2Q", 0, 0, 0, 1 << 16), struct.pack("<2I2Q", 0, 0, 64, 5)
    run = struct.pack("<11I", abi.OP_CHECKSUM, *[0] * 4, 0, 0, 0, 64, 0, 0)
    run += struct.pack("<I", 1) + (ranges[1] * 5)
    register = struct.pack("<3I", 0, abi.REG_IDENTITY_ABI, 0)
    whole = (
        (4, program),
        (5, ranges[0]),
        (10, ranges[1] + b"bytes"),
        (9, ranges[1]),
        (7, register),
    )
    whole += ((11, run), (12, b""), (13, struct.pack("<I", abi.REG_TOKEN)), (16, b""), (14, b""))

    def spelt(manner: int, messages: tuple[tuple[int, bytes], ...]) -> bytes:
        parts = (struct.pack("<BH", kind, len(body)) + body for kind, body in messages)
        return bytes([manner]) + b"".join(parts)

    cable = ((19, struct.pack("<2I", 1, 0)), (18, bytes(36)))
    return {
        "whole": spelt(0, whole),
        "container": spelt(0, ((3, b"xclbin2"), (4, program))),
        "cable": spelt(2, cable),
        "raw": b"\x01" + struct.pack("<I2H2I", 0x64624F4C, 1, 0, 208, 1) + bytes(100),
    }


def main() -> None:
    """Writes them."""
    for make in (vrtd, archive, xclbin, boardd):
        for name, content in make().items():
            path = CORPORA / make.__name__ / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)


if __name__ == "__main__":
    main()
