"""The part of Protocol Buffers' wire format that XRT's software emulation uses: numbers and byte
strings. A dozen flat messages need no schema compiler, and large transfers are not copied."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from lora_host.errors import TransportError

Value = int | bytes | memoryview
FRAME = struct.Struct("<BQBI")  # 9, bytes of the call, 21, number of the call
ANSWER = struct.Struct("<BQ")  # 9, bytes of the answer
FRAME_TAGS = (9, 21)
MAX_MESSAGE = 1 << 30


def decode(body: memoryview) -> dict[int, int | memoryview]:
    """Field number -> last value of the field. Repeated fields are not supported.
    TransportError if the bytes are not a message."""
    fields: dict[int, int | memoryview] = {}
    offset = 0
    while offset < len(body):
        key, offset = _varint(body, offset)
        number, kind = key >> 3, key & 7
        if kind == 0:
            fields[number], offset = _varint(body, offset)
            continue
        if kind == 2:
            length, offset = _varint(body, offset)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise TransportError(f"field {number}: wire type {kind} found, 0, 1, 2 or 5 expected")
        if length > len(body) - offset:
            raise TransportError(f"field {number}: {length} B found, {len(body) - offset} B left")
        fields[number] = body[offset : offset + length]
        offset += length
    return fields


def encode(fields: Mapping[int, Value]) -> list[bytes | memoryview]:
    """The message as parts to be sent in order. Large values are not copied."""
    parts: list[bytes | memoryview] = []
    for number, value in fields.items():
        if isinstance(value, int):
            parts.append(_pack(number << 3) + _pack(value))
        else:
            parts += [_pack(number << 3 | 2) + _pack(len(value)), value]
    return parts


def number(fields: Mapping[int, int | memoryview], field: int) -> int:
    """A number of a message, 0 if it is absent. TransportError if it is a byte string."""
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise TransportError(f"field {field}: a byte string found, a number expected")
    return value


def data(fields: Mapping[int, int | memoryview], field: int) -> memoryview:
    """A byte string of a message, empty if it is absent. TransportError if it is a number."""
    value = fields.get(field, memoryview(b""))
    if isinstance(value, int):
        raise TransportError(f"field {field}: a number found, a byte string expected")
    return value


def _varint(body: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(body) and shift < 70:
        byte = body[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value & (2**64 - 1), offset
    raise TransportError("a number ends outside its message")


def _pack(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
