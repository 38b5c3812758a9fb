"""K and V of a prompt from another program on this host, over its Unix socket
(docs/vllm_prefill.md).

The engine connects and sends the prompt's name. Lines of JSON come back: `QUEUED` while the prompt
waits, an `Opening` with the descriptor of shared memory, then a `Ready` for each layer of a range
of positions, in order. A line `{"error": ...}` may come at any time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host.placing import crc32
from lora_sdk.kv.pages import PAGE_POSITIONS

MAX_LINE = 1024
MAX_LAYERS, MAX_HEADS, MAX_HEAD, MAX_POSITIONS = 1024, 1024, 1024, 1 << 22
QUEUED = b'{"queued": true}\n'
KINDS = ("float16", "float32")


class NotComputed(Exception):
    """A worker does not compute this prompt; it may compute later ones. One line."""


@dataclass(frozen=True)
class Opening:
    """K and V in shared memory: [layers, 2, positions, heads, head_dim] of `kind`. `digest`: of the
    prompt's tokens, of which the last has no K and V here."""

    layers: int
    heads: int
    head_dim: int
    positions: int
    kind: str
    digest: str

    @property
    def row_bytes(self) -> int:
        """K or V of a position of a layer."""
        return self.heads * self.head_dim * np.dtype(self.kind).itemsize

    @property
    def bytes(self) -> int:
        """Of the shared memory."""
        return self.layers * 2 * self.positions * self.row_bytes

    def offset(self, layer: int, values: int, position: int) -> int:
        """Where K (`values` 0) or V (1) of a position begins."""
        return ((layer * 2 + values) * self.positions + position) * self.row_bytes


@dataclass(frozen=True)
class Ready:
    """`count` positions of `layer` from `first` on are in the memory; `crc`: CRC-32 of K and V."""

    layer: int
    first: int
    count: int
    crc: int


def digest_of(tokens: Sequence[int]) -> str:
    """Of a prompt's tokens."""
    return sha256(np.asarray(tokens, "<u4").tobytes()).hexdigest()


def crc_of(kv: npt.NDArray[Any]) -> int:
    """CRC-32 of K and V of a range of positions, [2, positions, heads, head_dim]."""
    return crc32(kv.reshape(-1).view(np.uint8))


def line_of(message: Opening | Ready) -> bytes:
    """A message as it is sent."""
    return json.dumps(asdict(message)).encode() + b"\n"


def error_line(why: str) -> bytes:
    """Says why there is nothing more."""
    return json.dumps({"error": why[:500]}).encode() + b"\n"


def read_line(line: bytes) -> Mapping[str, Any]:
    """The fields of a message. NotComputed: it is none, or says why there is nothing more."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotComputed(f"sent {line!r:.60}; expected a JSON object")
    if "error" in found:
        raise NotComputed(f"{found['error']!s:.200}")
    return found


def opening_of(found: Mapping[str, Any]) -> Opening:
    """NotComputed names the field that is wrong."""
    limits = {
        "layers": (1, MAX_LAYERS), "heads": (1, MAX_HEADS), "head_dim": (1, MAX_HEAD),
        "positions": (1, MAX_POSITIONS),
    }  # fmt: skip
    opening = Opening(**_fields(Opening, found, limits))
    if opening.kind not in KINDS:
        raise NotComputed(f"sent kind {opening.kind!r:.40}; expected one of {', '.join(KINDS)}")
    return opening


def ready_of(found: Mapping[str, Any], opening: Opening) -> Ready:
    """NotComputed names the field that is wrong."""
    limits = {
        "layer": (0, opening.layers - 1), "first": (0, opening.positions - 1),
        "count": (1, opening.positions), "crc": (0, (1 << 32) - 1),
    }  # fmt: skip
    return Ready(**_fields(Ready, found, limits))


def in_order(opening: Opening, ready: Ready, layer: int, first: int, count: int) -> None:
    """NotComputed unless `ready` is `layer` of positions from `first` on: all layers of a range
    follow each other, and ranges, of whole pages but for the last. `count`: of the range, 0 where
    it begins."""
    end = ready.first + ready.count
    whole = ready.count % PAGE_POSITIONS == 0 or end == opening.positions
    placed = (ready.layer, ready.first) == (layer, first) and count in (0, ready.count)
    if not placed or not whole or end > opening.positions:
        raise NotComputed(
            f"sent positions {ready.first} to {end} of layer {ready.layer}; expected whole pages "
            f"from {first} on of layer {layer}, of {opening.positions} positions"
        )


def _fields(
    kind: type[Any], found: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """Exactly the fields of `kind`; integers within their limits, others strings."""
    names = [one.name for one in fields(kind)]
    if sorted(found) != sorted(names):
        raise NotComputed(f"sent fields {sorted(found)!s:.100}; expected {', '.join(names)}")
    for name in names:
        value, limit = found[name], limits.get(name)
        if limit is None:
            if not isinstance(value, str):
                raise NotComputed(f"sent {name} {value!r:.40}; expected a text")
        elif type(value) is not int or not limit[0] <= value <= limit[1]:
            raise NotComputed(f"sent {name} {value!r:.40}; expected {limit[0]} to {limit[1]}")
    return dict(found)


def lines_in(buffer: bytearray) -> Iterator[bytes]:
    """Take whole lines out of `buffer`. NotComputed: one is too long."""
    while (end := buffer.find(b"\n")) >= 0:
        yield bytes(buffer[:end])
        del buffer[: end + 1]
    if len(buffer) > MAX_LINE:
        raise NotComputed(f"sent {len(buffer)} B without an end of line; expected {MAX_LINE}")
