"""Packs the control program's code into an image: `struct lora_image_header`, then the code.

    python tools/firmware_image.py --board 0x280 --entry 0 CODE IMAGE

Reads the ABI number and the magic from abi.h, so they are defined once. If a file is missing or a
value does not fit, it prints one line to stderr and exits with code 1.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
import zlib
from pathlib import Path

ABI_HEADER = Path(__file__).resolve().parents[1] / "csrc" / "include" / "lora" / "abi.h"
HEADER = struct.Struct("<8I")  # magic, size, abi, board, code_bytes, code_crc, entry, reserved
LIMIT = 64 * 1024


def constant(name: str) -> int:
    """The value of a `#define` or enumerator of abi.h. ValueError if there is none."""
    text = ABI_HEADER.read_text()
    found = re.search(rf"\b{name}\b\s*=?\s*(0x[0-9a-fA-F]+|\d+)", text)
    if found is None:
        raise ValueError(f"{ABI_HEADER.name}: no {name}")
    return int(found.group(1), 0)


def pack(code: bytes, board: int, entry: int) -> bytes:
    """The image of `code` for a board kind (enum lora_board_kind). The first instruction is at byte
    `entry` of the code. ValueError if code or entry is out of range."""
    if not 0 < len(code) <= LIMIT:
        raise ValueError(f"code has {len(code)} B, expected 1..{LIMIT}")
    if not 0 <= entry < len(code):
        raise ValueError(f"entry {entry:#x} lies outside of the code's {len(code)} B")
    header = HEADER.pack(
        constant("LORA_IMAGE_MAGIC"),
        HEADER.size,
        constant("LORA_ABI_NUMBER"),
        board,
        len(code),
        zlib.crc32(code),
        entry,
        0,
    )
    return header + code


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="pack a firmware image")
    parser.add_argument("--board", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--entry", type=lambda text: int(text, 0), default=0)
    parser.add_argument("code", type=Path)
    parser.add_argument("image", type=Path)
    options = parser.parse_args(arguments)
    try:
        image = pack(options.code.read_bytes(), options.board, options.entry)
        options.image.write_bytes(image)
    except (OSError, ValueError) as error:
        print(f"firmware_image: {error}", file=sys.stderr)
        return 1
    crc = zlib.crc32(image[HEADER.size :])
    print(f"{options.image}: {len(image)} B, CRC {crc:#010x}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
