"""A server that is measured: its processes, and the processor time of each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

START_S = 600


class BenchedServer:
    """Processes of one group, from the time when it answers to the end of the `with` statement."""

    def __init__(
        self, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]
    ) -> None:
        """`env`: variables beside those of this process, without any that name boards."""
        self._command, self.port, self._log = list(command), port, log
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("LORA_")}
        self._env |= {"VLLM_CPU_KVCACHE_SPACE": "1", **env}

    def __enter__(self) -> BenchedServer:
        """RuntimeError: it has ended, or takes too long."""
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=self._env,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _wait(self) -> None:
        url, end = f"http://127.0.0.1:{self.port}/health", time.monotonic() + START_S
        while True:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no answer of {url}; see {self._log}")
            try:
                urlopen(url, timeout=5).close()
                return
            except OSError:  # 503 too: it loads its model
                time.sleep(0.5)

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def seconds(self) -> dict[str, float]:
        """Processor seconds so far, by the names of processes and of threads within them."""
        ticks: Counter[str] = Counter()
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    if int(_stat(process)[1][2]) != self._process.pid:
                        continue
                    name, fields = _stat(process)
                    ended = _ticks(fields)
                    for task in (process / "task").iterdir():
                        thread, fields = _stat(task)
                        kind = "main thread" if task.name == process.name else f"{thread!r}"
                        ticks[f"{name}, {kind}"] += _ticks(fields)
                        ended -= _ticks(fields)
                    ticks[f"{name}, ended threads"] += ended
                except OSError:  # it has ended
                    continue
        return {part: count / os.sysconf("SC_CLK_TCK") for part, count in ticks.items()}


def _stat(path: Path) -> tuple[str, list[str]]:
    """The name of a process or thread, and the fields after it."""
    head, _, rest = (path / "stat").read_text().rpartition(")")
    return head.partition("(")[2], rest.split()


def _ticks(fields: Sequence[str]) -> int:
    """Processor time of user and system."""
    return int(fields[11]) + int(fields[12])
