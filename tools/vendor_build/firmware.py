"""The control program as initial memory: a ROM beside the kernel, which its loader copies."""

from __future__ import annotations

import struct
import zlib

from lora_host.overlay import Overlay
from tools.vendor_build.errors import BuildError

HEADER_BYTES = 32  # struct lora_image_header
LOCAL_BYTES = 128 << 10  # the soft core's local memory


def words(overlay: Overlay) -> tuple[int, ...]:
    """The code of a manifest's image, little-endian words. OverlayError where the image is not the
    manifest's, BuildError where it is none of whole words."""
    image = overlay.image
    code, entry = image[HEADER_BYTES:], struct.unpack_from("<I", image, 24)[0]
    if len(code) % 4 or len(code) > LOCAL_BYTES or entry:
        raise BuildError(
            f"{overlay.image_path}: {len(code)} B of code, entry {entry:#x} found; whole "
            f"words, at most "
            f"{LOCAL_BYTES} B, entry 0 expected"
        )
    return struct.unpack(f"<{len(code) // 4}I", code)


def crc(code: tuple[int, ...]) -> int:
    """CRC-32 of the code, as the card reports it."""
    return zlib.crc32(struct.pack(f"<{len(code)}I", *code))


def rom(code: tuple[int, ...]) -> str:
    """SystemVerilog of module firmware_rom. Assignments in an initial block are what every tool
    takes for a memory's content; no file has to be found."""
    rows = [f"    words[{place}] = 32'h{word:08x};" for place, word in enumerate(code)]
    bits = max(1, (len(code) - 1).bit_length())
    return "\n".join(
        [
            "// SPDX-License-Identifier: Apache-2.0",
            f"// Made from a manifest's firmware image, CRC {crc(code):#010x}.",
            "module firmware_rom (",
            "    input  logic        clk,",
            "    input  logic [14:0] word,",
            "    output logic [31:0] data",
            ");",
            f'  (* rom_style = "block" *) logic [31:0] words[{len(code)}];',
            "  initial begin",
            *rows,
            "  end",
            f"  always_ff @(posedge clk) data <= words[word[{bits - 1}:0]];",
            "endmodule",
            "",
        ]
    )
