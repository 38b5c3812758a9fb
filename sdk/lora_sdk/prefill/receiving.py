"""Prompts that a vLLM server on this host computes and hands over (docs/vllm_prefill.md)."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lora_sdk.model.quantization import AttentionScales
from lora_sdk.prefill.near import NearParts
from lora_sdk.prefill.shared_kv import (
    MAX_LINE,
    NotComputed,
    Opening,
    Ready,
    crc_of,
    in_order,
    lines_in,
    opening_of,
    read_line,
    ready_of,
)

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.prefill.job import Job, Part

CONNECT_S = 5.0
POLL_S = 0.1  # between two looks at whether the prompt is still wanted
UNKNOWN_S = 10.0  # until the server knows the prompt: its request may come after ours
SILENT_S = 300.0  # between two messages of a prompt that it knows

_log = logging.getLogger("lora_sdk.prefill")


class Link:
    """A connection to the other program, and the shared memory that it has sent."""

    def __init__(self, connected: socket.socket, job: Job) -> None:
        """Owns the socket `connected`."""
        self._job = job
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self.memory: int | None = None
        self._socket = connected

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Which tells the other program that no more is wanted."""
        self._socket.close()
        if self.memory is not None:
            os.close(self.memory)
            self.memory = None

    def ask(self) -> None:
        """Send the prompt's name. OSError: the other end is gone."""
        self._socket.settimeout(POLL_S)
        self._socket.sendall(f"{self._job.name}\n".encode())

    def line(self, limit: float) -> bytes | None:
        """The next line. None: the prompt is no longer wanted. NotComputed: the other program has
        ended, or said nothing for `limit` seconds."""
        end = time.monotonic() + limit
        while not self._lines:
            if not self._job.wanted():
                return None
            if time.monotonic() > end:
                raise NotComputed(f"said nothing for {limit:.0f} s")
            self._receive()
        return self._lines.popleft()

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_LINE, 1)
        except TimeoutError:
            return
        for one in descriptors:
            if self.memory is None:
                self.memory = one
            else:
                os.close(one)
        if not data:
            raise NotComputed("ended before the prompt was computed")
        self._rest += data
        self._lines.extend(lines_in(self._rest))


def _connected(path: str) -> socket.socket:
    """OSError: nothing listens."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(CONNECT_S)
        connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected


class ReceivingComputer:
    """Takes K and V of named prompts. Thread-safe."""

    takes_adapters = False
    by_name = True
    at_once = 16

    def __init__(
        self, path: str, config: ModelConfig, scales: Sequence[AttentionScales], context: int
    ) -> None:
        """`path`: of the socket. The model's `config`, static `scales` and `context`."""
        self._path = path
        self._shape = (config.layers, config.kv_heads, config.head_dim)
        self._parts = NearParts(config, scales)
        self._failing = False
        self.context = context

    def close(self) -> None:
        """See Computer. Prompts end by themselves: nobody wants them any more."""

    def compute(self, job: Job, give: Callable[[Part], None]) -> None:
        """See Computer. A part is a group of layers of the positions that a step of vLLM has
        computed, given while the next layers compute."""
        try:
            with Link(_connected(self._path), job) as link:
                link.ask()
                self.take(link, job, give)
        except OSError as error:
            self._note(error.strerror or str(error))
            raise NotComputed(f"{self._path}: {error.strerror or error}") from error
        except NotComputed as error:
            self._note(str(error))
            raise
        self._failing = False

    def _note(self, why: str) -> None:
        """A line in the log, for the first of several failures."""
        if not self._failing:
            _log.warning("prefill vllm:%s: %s; the boards compute the prompt", self._path, why)
        self._failing = True

    def take(self, link: Link, job: Job, give: Callable[[Part], None]) -> None:
        """What the other program sends. NotComputed: what is wrong with it. OSError: the memory."""
        opening = self._opening(link, job)
        if opening is None:
            return
        layer = first = count = 0
        pairs: list[tuple[Any, Any]] = []
        while first < opening.positions:
            line = link.line(SILENT_S)
            if line is None:
                return
            ready = ready_of(read_line(line), opening)
            in_order(opening, ready, layer, first, count)
            pairs.append(_read(link, opening, ready))
            if self._parts.ends_group(layer):
                give(self._parts.part(layer, first, pairs))
                pairs = []
            layer, count = layer + 1, ready.count
            if layer == opening.layers:
                layer, first, count = 0, first + count, 0

    def _opening(self, link: Link, job: Job) -> Opening | None:
        """None: the prompt is no longer wanted. NotComputed: it is not what the job has."""
        limit = UNKNOWN_S
        while (line := link.line(limit)) is not None:
            found = read_line(line)
            if found == {"queued": True}:
                limit = SILENT_S
                continue
            opening = opening_of(found)
            shape = (opening.layers, opening.heads, opening.head_dim)
            if shape != self._shape:
                raise NotComputed(
                    f"sent K and V of layers, heads and head size {shape}; expected {self._shape}"
                )
            if opening.positions != len(job.tokens) or opening.digest != job.digest:
                raise NotComputed(
                    f"{job.name!r} is a prompt of {opening.positions + 1} other tokens; expected "
                    f"the {len(job.tokens) + 1} that were asked for here"
                )
            if link.memory is None:
                raise NotComputed("sent no memory with the first message")
            return opening
        return None


def _read(link: Link, opening: Opening, ready: Ready) -> tuple[Any, Any]:
    """FP32 [KV heads, positions, head_dim] of K and of V. NotComputed: the checksum differs. They
    are read, not mapped: memory that shrinks is then an error and no signal."""
    assert link.memory is not None
    kv = np.empty((2, ready.count, opening.heads, opening.head_dim), opening.kind)
    for values, array in enumerate(kv):
        at = opening.offset(ready.layer, values, ready.first)
        if os.preadv(link.memory, [array.data.cast("B")], at) != array.nbytes:
            raise NotComputed(f"shared memory ends within layer {ready.layer}")
    found = crc_of(kv)
    if found != ready.crc:
        raise NotComputed(
            f"checksum of layer {ready.layer}, positions from {ready.first} on, is {found:#010x}; "
            f"expected {ready.crc:#010x}"
        )
    k, v = kv.transpose(0, 2, 1, 3).astype(np.float32)
    return k, v
