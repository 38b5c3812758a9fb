"""K and V of prompts, from this process to engines on the same host, as
lora_sdk.prefill.shared_kv describes."""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_sdk.arguments.prefill_name import NAME
from lora_sdk.prefill.shared_kv import (
    MAX_LINE,
    QUEUED,
    Opening,
    Ready,
    crc_of,
    error_line,
    line_of,
)

UNKNOWN_S = 15.0  # that an engine may ask before vLLM knows the prompt
KEEP_S = 60.0  # that a prompt nobody takes is kept after its last byte
POLL_S = 1.0  # between two looks at whether the engine is still there
SEND_S = 30.0  # that an engine may leave a line unread
MAX_ENGINES = 256  # connections at once

_log = logging.getLogger("vllm.lora_vllm")


@dataclass(eq=False)
class Prompt:
    """A prompt from its announcement on. `memory`: the descriptor of its shared memory. `lines`:
    what engines are told, the opening first. `why`: it is dropped. `ended`: when it was complete or
    dropped."""

    opening: Opening | None = None
    memory: int | None = None
    lines: list[bytes] = field(default_factory=list)
    why: str | None = None
    ended: float | None = None

    def close(self, why: str) -> None:
        """Free the memory, for good."""
        self.why = self.why or why
        if self.memory is not None:
            os.close(self.memory)
            self.memory = None


class HandOut:
    """Serves prompts on a Unix socket. `room`: bytes of shared memory at once. Thread-safe."""

    def __init__(self, path: str, room: int, clock: Callable[[], float] = time.monotonic) -> None:
        """OSError: the socket cannot be made, or another process listens on it."""
        self._path, self._room, self._clock = path, room, clock
        self._changed = threading.Condition()
        self._prompts: dict[str, Prompt] = {}
        self._engines = 0
        self._closed = False
        self._socket = _listening(path)
        self._thread = threading.Thread(target=self._accept, name="lora-hand-out", daemon=True)
        self._thread.start()

    @property
    def used(self) -> int:
        """Bytes of shared memory in use."""
        with self._changed:
            return self._used()

    @property
    def engines(self) -> int:
        """Connections of engines."""
        with self._changed:
            return self._engines

    def _used(self) -> int:
        held = (
            one.opening.bytes
            for one in self._prompts.values()
            if one.opening and one.memory is not None
        )
        return sum(held)

    # --- what vLLM does -------------------------------------------------------------------------

    def announce(self, name: str) -> None:
        """vLLM knows a prompt of this name. A name that is in use stands for neither."""
        with self._changed:
            self._sweep()
            if name in self._prompts:
                self._drop(self._prompts[name], "its name was given to two prompts")
            else:
                self._prompts[name] = Prompt()
            self._changed.notify_all()

    def wants(self, name: str) -> bool:
        """Whether K and V of a prompt are still to be put."""
        with self._changed:
            prompt = self._prompts.get(name)
            return prompt is not None and prompt.ended is None

    def begin(self, name: str, opening: Opening) -> None:
        """Its first rows run. Where there is no room it is dropped. OSError: no memory."""
        with self._changed:
            self._sweep()
            prompt = self._prompts.get(name)
            if prompt is None or prompt.ended is not None:
                return
            used = self._used()
            if used + opening.bytes > self._room:
                self._drop(prompt, f"{used} B wait to be taken; no room for {opening.bytes} B more")
                return
            prompt.memory = os.memfd_create("lora-kv", os.MFD_CLOEXEC)
            os.ftruncate(prompt.memory, opening.bytes)
            prompt.opening = opening
            prompt.lines.append(line_of(opening))
            self._changed.notify_all()

    def put(self, name: str, layer: int, first: int, kv: npt.NDArray[Any]) -> None:
        """K and V of positions from `first` on of a layer, [2, positions, heads, head_dim]."""
        with self._changed:
            prompt = self._prompts.get(name)
            if prompt is None or prompt.memory is None or prompt.opening is None:
                return
            opening, memory = prompt.opening, os.dup(prompt.memory)
        kv = np.ascontiguousarray(kv)
        try:
            for values, array in enumerate(kv):
                os.pwrite(memory, array.data.cast("B"), opening.offset(layer, values, first))
        finally:
            os.close(memory)
        ready = Ready(layer, first, kv.shape[1], crc_of(kv))
        with self._changed:
            prompt.lines.append(line_of(ready))
            if layer == opening.layers - 1 and first + kv.shape[1] == opening.positions:
                prompt.ended = self._clock()
            self._changed.notify_all()

    def drop(self, name: str, why: str) -> None:
        """A prompt ends without all its K and V; nothing happens to one that is complete."""
        with self._changed:
            prompt = self._prompts.get(name)
            if prompt is not None and prompt.ended is None:
                self._drop(prompt, why)

    def close(self) -> None:
        """Drop all and remove the socket."""
        with self._changed:
            self._closed = True
            for prompt in self._prompts.values():
                self._drop(prompt, "the vLLM server has ended")
        self._thread.join()
        self._socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _drop(self, prompt: Prompt, why: str) -> None:
        """Its name is kept for a while: an engine that asks is told at once."""
        prompt.close(why)
        prompt.ended = self._clock()
        self._changed.notify_all()

    def _sweep(self) -> None:
        """Forget what nobody has taken."""
        now = self._clock()
        for name, prompt in list(self._prompts.items()):
            if prompt.ended is not None and now - prompt.ended > KEEP_S:
                prompt.close(f"nobody took it for {KEEP_S:.0f} s")
                del self._prompts[name]

    # --- what engines ask -----------------------------------------------------------------------

    def _accept(self) -> None:
        self._socket.settimeout(0.2)
        while not self._closed:
            try:
                engine = self._socket.accept()[0]
            except TimeoutError:
                with self._changed:
                    self._sweep()
                continue
            except OSError as error:
                _log.warning("%s: %s", self._path, error)
                time.sleep(0.2)
                continue
            with self._changed:
                full = self._engines >= MAX_ENGINES
                self._engines += not full
            if full:
                engine.close()
                continue
            threading.Thread(target=self._serve, args=(engine,), daemon=True).start()

    def _serve(self, engine: socket.socket) -> None:
        name = None
        try:
            with engine:
                engine.settimeout(SEND_S)
                name = _asked(engine)
                prompt = None if name is None else self._wait_for(name)
                if prompt is None:
                    engine.sendall(error_line("knows no prompt of this name"))
                else:
                    self._send(engine, prompt)
        except OSError:  # the engine is gone, or reads nothing
            pass
        finally:
            with self._changed:
                self._engines -= 1
                taken = None if name is None else self._prompts.pop(name, None)
                if taken is not None:
                    taken.close("its engine is gone")

    def _wait_for(self, name: str) -> Prompt | None:
        with self._changed:
            self._changed.wait_for(lambda: name in self._prompts or self._closed, UNKNOWN_S)
            return self._prompts.get(name)

    def _send(self, engine: socket.socket, prompt: Prompt) -> None:
        """Pass on what becomes known of a prompt, to the last byte of it."""
        engine.sendall(QUEUED)
        sent = 0
        while not _gone(engine):
            lines, memory = self._news(prompt, sent)
            try:
                if sent == 0 and lines and memory is not None:
                    socket.send_fds(engine, [lines[0]], [memory])
                    lines, sent = lines[1:], 1
            finally:
                if memory is not None:
                    os.close(memory)
            if prompt.why is not None:
                engine.sendall(error_line(prompt.why))
                return
            engine.sendall(b"".join(lines))
            sent += len(lines)
            if prompt.ended is not None and sent == len(prompt.lines):
                return

    def _news(self, prompt: Prompt, sent: int) -> tuple[list[bytes], int | None]:
        """Lines after those that were sent, and a copy of the memory's descriptor with the first;
        after POLL_S none."""
        with self._changed:
            self._changed.wait_for(lambda: len(prompt.lines) > sent or prompt.why, POLL_S)
            memory = None if prompt.memory is None or sent else os.dup(prompt.memory)
            return ([] if prompt.why else prompt.lines[sent:]), memory


def _gone(engine: socket.socket) -> bool:
    """Whether the other end is closed: it has nothing to say after the name."""
    watched = select.poll()
    watched.register(engine, select.POLLIN)
    return bool(watched.poll(0))


def _asked(engine: socket.socket) -> str | None:
    """The name that an engine asks for, a line. None: it is no name."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE:
        data = engine.recv(MAX_LINE)
        if not data:
            return None
        line += data
    name = line[:-1].decode("ascii", "replace")
    return name if NAME.fullmatch(name) else None


def _listening(path: str) -> socket.socket:
    """A socket for this user alone. One that a dead process has left is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(path) == 0:
                    raise OSError(f"{path}: another process listens on it; name another socket")
            os.unlink(path)
        mask = os.umask(0o177)
        try:
            listening.bind(path)
        finally:
            os.umask(mask)
        listening.listen(64)
    except BaseException:
        listening.close()
        raise
    return listening
