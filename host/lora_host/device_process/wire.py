"""Protocol buffers' wire format, as far as XRT's software emulation uses it: numbers and byte
strings. A dozen flat messages need no schema compiler, and large transfers stay views."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from lora_host.errors import TransportError

Value = int | bytes | memoryview
FRAME = struct.Struct("<BQBI")  # 9, bytes of the call, 21, number of the call
ANSWER = struct.Struct("<BQ")  # 9, bytes of the answer
FRAME_TAGS = (9, 21)
MAX_MESSAGE = 1 << 32


def decode(body: memoryview) -> dict[int, int | memoryview]:
    """Field number -> value, the last one of each; repeated messages are of no interest here.
    TransportError when the bytes are no message."""
    fields: dict[int, int | memoryview] = {}
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            fields[number], at = _varint(body, at)
            continue
        if kind == 2:
            length, at = _varint(body, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise TransportError(f"field {number}: wire type {kind} found, 0, 1, 2 or 5 expected")
        if length > len(body) - at:
            raise TransportError(f"field {number}: {length} B found, {len(body) - at} B left")
        fields[number] = body[at : at + length]
        at += length
    return fields


def encode(fields: Mapping[int, Value]) -> list[bytes | memoryview]:
    """The message as pieces to be sent one after another; large values are not copied."""
    pieces: list[bytes | memoryview] = []
    for number, value in fields.items():
        if isinstance(value, int):
            pieces.append(_pack(number << 3) + _pack(value))
        else:
            pieces += [_pack(number << 3 | 2) + _pack(len(value)), value]
    return pieces


def number(fields: Mapping[int, int | memoryview], field: int) -> int:
    """A number of a message, 0 where it is absent as for all such fields. TransportError when it is
    a byte string."""
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise TransportError(f"field {field}: a byte string found, a number expected")
    return value


def data(fields: Mapping[int, int | memoryview], field: int) -> memoryview:
    """A byte string of a message, empty where it is absent."""
    value = fields.get(field, memoryview(b""))
    if isinstance(value, int):
        raise TransportError(f"field {field}: a number found, a byte string expected")
    return value


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 70:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise TransportError("a number ends outside its message")


def _pack(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
