"""V80 boards as reported by vrtd, without opening them."""

from __future__ import annotations

from dataclasses import dataclass

from .. import abi, native
from ..failure import to_error

_UNITS = {1: "C", 2: "A", 4: "V", 8: "W"}
_LIMIT = 16


@dataclass(frozen=True)
class Sensor:
    """A reading of one of the board's sensors."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Identity:
    """Identity registers of a loaded overlay."""

    abi: int
    board: int
    serial: int
    firmware_crc: int


def socket_path() -> str:
    """Path of vrtd's socket."""
    text: bytes = native.ffi().string(native.lib().lora_slash_socket())
    return text.decode()


def devices() -> list[tuple[str, str]]:
    """(BDF, name) of the boards that vrtd serves. TransportError without vrtd. vrtd names a board
    without a PCI function; function 0 stands for it, as in URIs."""
    ffi, lib = native.ffi(), native.lib()
    records = ffi.new("struct lora_slash_device[]", _LIMIT)
    count, failure = ffi.new("uint32_t *"), ffi.new("struct lora_failure *")
    if lib.lora_slash_devices(records, _LIMIT, count, failure):
        raise to_error(failure)

    def text(value: object) -> str:
        found: bytes = ffi.string(value)
        return found.decode(errors="replace")

    found = [(text(r.bdf), text(r.name)) for r in records[0 : min(_LIMIT, int(count[0]))]]
    return [(bdf if "." in bdf else f"{bdf}.0", name) for bdf, name in found]


def sensors(bdf: str) -> list[Sensor]:
    """A board's sensors. TransportError without vrtd or board."""
    ffi, lib = native.ffi(), native.lib()
    records = ffi.new("struct lora_slash_sensor[]", 56)
    count, failure = ffi.new("uint32_t *"), ffi.new("struct lora_failure *")
    if lib.lora_slash_sensors(bdf.encode(), records, 56, count, failure):
        raise to_error(failure)
    return [
        Sensor(ffi.string(r.name).decode(errors="replace"), r.value, _UNITS.get(r.type, "?"))
        for r in records[0 : int(count[0])]
    ]


def peek(bdf: str, address: int, words: int) -> list[int]:
    """Registers from an AXI address on, 32-bit words. TransportError without vrtd or board."""
    ffi, lib = native.ffi(), native.lib()
    out, failure = ffi.new("uint32_t[]", words), ffi.new("struct lora_failure *")
    if lib.lora_slash_peek(bdf.encode(), address, out, words, failure):
        raise to_error(failure)
    return [int(word) for word in out]


def identity(bdf: str, control_base: int) -> Identity | None:
    """Identity of the loaded overlay, None if it is not one of this project."""
    first = abi.REG_IDENTITY_ABI
    words = peek(bdf, control_base + first, (abi.REG_FIRMWARE_CRC - first) // 4 + 1)
    kind = words[(abi.REG_IDENTITY_BOARD - first) // 4]
    serial = words[(abi.REG_IDENTITY_SERIAL - first) // 4]
    crc = words[(abi.REG_FIRMWARE_CRC - first) // 4]
    if kind != abi.BOARD_V80:
        return None
    return Identity(words[0], kind, serial, crc)
