"""Structures of the xclbin container (axlf), as defined by xclbin.h of XRT: little endian,
natural alignment. Sizes are asserted there and in the tests."""

from __future__ import annotations

import struct

MAGIC = b"xclbin2\0"
MODE_FLAT, MODE_SW_EMU = 0, 5
TARGETS = {0: "hw", 1: "hw", 2: "hw", 3: "hw", 4: "hw_emu", 5: "sw_emu", 6: "hw_emu"}  # by mode

# struct axlf up to and including axlf_header; the section headers follow.
TOP = struct.Struct("<8si28s256sQ")
HEADER = struct.Struct("<QQQHBBHH16s64s16s16sI4x")
SECTION = struct.Struct("<I16s4xQQ")
MEMORY = struct.Struct("<BB6xQQ16s")
IP = struct.Struct("<IIQ64s")
CONNECTION = struct.Struct("<3i")
CLOCK = struct.Struct("<HB5x128s")
COUNT_8 = struct.Struct("<i4x")  # before 8-aligned records
COUNT_4 = struct.Struct("<i")
COUNT_2 = struct.Struct("<h")

BITSTREAM, EMBEDDED_METADATA, MEM_TOPOLOGY, CONNECTIVITY, IP_LAYOUT = 0, 2, 6, 7, 8
CLOCK_FREQ_TOPOLOGY, BUILD_METADATA, USER_METADATA = 11, 14, 16
GROUP_TOPOLOGY, GROUP_CONNECTIVITY = 26, 27
SECTION_NAMES = {
    BITSTREAM: "BITSTREAM",
    EMBEDDED_METADATA: "EMBEDDED_METADATA",
    MEM_TOPOLOGY: "MEM_TOPOLOGY",
    CONNECTIVITY: "CONNECTIVITY",
    IP_LAYOUT: "IP_LAYOUT",
    CLOCK_FREQ_TOPOLOGY: "CLOCK_FREQ_TOPOLOGY",
    BUILD_METADATA: "BUILD_METADATA",
    USER_METADATA: "USER_METADATA",
    GROUP_TOPOLOGY: "GROUP_TOPOLOGY",
    GROUP_CONNECTIVITY: "GROUP_CONNECTIVITY",
}
MAX_SECTIONS = 256

MEM_DDR3, MEM_DDR4, MEM_DRAM, MEM_HBM = 0, 1, 2, 6
MEMORY_KINDS = {MEM_DDR4: "ddr", MEM_HBM: "hbm"}
IP_KERNEL = 1
AP_CTRL_HS, AP_CTRL_CHAIN, AP_CTRL_NONE = 0, 1, 2
CONTROL_NAMES = {
    AP_CTRL_HS: "ap_ctrl_hs",
    AP_CTRL_CHAIN: "ap_ctrl_chain",
    AP_CTRL_NONE: "ap_ctrl_none",
}
CONTROL_SHIFT, CONTROL_MASK = 8, 0xFF00
CLOCK_DATA, CLOCK_KERNEL, CLOCK_SYSTEM = 1, 2, 3
