"""This machine's bandwidth for reading memory, and for copying files from the page cache to fresh
pages."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from lora_host import native
from lora_host.errors import RequestError, TransportError
from lora_lab.bench.page_reporting import wait_for_report

MAX_BYTES = 1 << 30  # of the buffer: more adds no information, and the model needs the memory
MIN_READ = 256 << 20  # shorter reads are too short to time
MIN_SETTLED = 1 << 30  # fewer pages are touched before a report is likely to interfere


class ReadBuffer:
    """A buffer in huge pages, like emulated banks, with as many bytes as a token reads (at most
    1 GiB). A context manager."""

    def __init__(self, bytes: int, max_bytes: int = MAX_BYTES) -> None:
        """TransportError if the system is out of memory."""
        self.bytes = max(1 << 16, min(bytes, max_bytes))
        self._memory = native.lib().lora_bench_buffer(self.bytes)
        if self._memory == native.ffi().NULL:
            raise TransportError(f"no memory for a buffer of {self.bytes >> 20} MiB to read")

    def bandwidth(self, threads: int) -> dict[str, float]:
        """Bytes per second of each reader variant that this machine can run. Each reads the buffer
        once (a small buffer several times)."""
        lib, ffi = native.lib(), native.ffi()
        passes = -(-MIN_READ // self.bytes)
        found: dict[str, float] = {}
        for index in range(_readers()):
            if lib.lora_bench_reader_supported(index):
                took = lib.lora_bench_read(self._memory, self.bytes, threads, passes, index)
                name = ffi.string(lib.lora_bench_reader(index)).decode()
                found[name] = self.bytes * passes / _seconds(took, threads)
        return found

    def close(self) -> None:
        """Free the memory."""
        native.lib().lora_bench_free(self._memory, self.bytes)
        self._memory = native.ffi().NULL

    def __enter__(self) -> ReadBuffer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def copy_bandwidth(files: Sequence[Path], threads: int) -> float:
    """Bytes per second of memcpy from mapped files to fresh huge pages: the reference for loading.
    Call `read_files` first, else this measures the disk."""
    total, seconds = 0, 0.0
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = np.frombuffer(data, np.uint8)
            source = native.ffi().from_buffer(view)
            WarmPages(len(view)).release()
            seconds += _seconds(native.lib().lora_bench_copy(source, len(view), threads), threads)
            total += len(view)
            native.ffi().release(source)
            del source, view  # the map cannot be closed earlier
    return total / seconds


def read_files(files: Sequence[Path]) -> None:
    """Read files into the page cache."""
    part = memoryview(bytearray(1 << 20))
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(part):
                pass


class WarmPages:
    """Holds pages for a measurement that needs fresh ones. A virtual machine returns its free pages
    to the host within seconds. The first touch of such a page takes ten times as long as clearing
    it. So the later of two measurements, loading or copying, would look faster. The pages are held
    until `release`, just before the clock starts, or `close`. Closing twice is no error."""

    def __init__(self, bytes: int) -> None:
        """TransportError if the system is out of memory."""
        self._buffer: ReadBuffer | None = ReadBuffer(bytes, max_bytes=bytes)

    def release(self) -> None:
        """Free the pages after the report of those freed earlier, so that no report comes during
        the measurement and takes these too. Less than 1 GiB is freed at once."""
        if self._buffer is not None and self._buffer.bytes >= MIN_SETTLED:
            wait_for_report()
        self.close()

    def close(self) -> None:
        """Free the pages."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None


@contextmanager
def bound_threads(threads: int | None) -> Iterator[int]:
    """Bind this process to `threads` of its cores, None for all. This limits kernels, loading and
    reading. Yields the number of cores. RequestError if there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    count = len(cores) if threads is None else threads
    if not 1 <= count <= len(cores):
        raise RequestError(f"{threads} threads; expected 1..{len(cores)}, the process's cores")
    os.sched_setaffinity(0, cores[:count])
    try:
        yield count
    finally:
        os.sched_setaffinity(0, cores)


def _readers() -> int:
    count = 0
    while native.lib().lora_bench_reader(count) != native.ffi().NULL:
        count += 1
    return count


def _seconds(nanoseconds: int, threads: int) -> float:
    if not nanoseconds:
        raise TransportError(f"measuring memory on {threads} threads failed: no memory or threads")
    return nanoseconds * 1e-9
