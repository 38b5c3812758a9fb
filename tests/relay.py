"""Runs tests of transports that need their own process in a second pytest, which lives for the
whole session. It receives the names of tests one at a time and returns their reports, which count
here. Fixtures and test functions are the same in both."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment

APART = ("xrt", "slash")
SECONDS = 120  # of one test, fixtures included
_KEY = pytest.StashKey[dict[str, "Child"]]()


def transport_of(item: pytest.Item) -> str | None:
    """The transport of an item, None if it has none."""
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("transport") if callspec else None
    return name if isinstance(name, str) else None


class Child:
    """A pytest process that runs tests of one transport on request."""

    def __init__(self, config: pytest.Config, name: str, files: list[Path]) -> None:
        self._config = config
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += ["-p", "tests.relay_child", "-p", "no:xdist", "-o", "addopts="]
            command += ["--transport", name, "--relay", str(theirs.fileno())]
            if config.getoption("--require-xrt"):
                command.append("--require-xrt")
            self._process = subprocess.Popen(
                [*command, *map(str, files)],
                cwd=config.rootpath,
                env=environment(),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # XRT kills whole process groups
            )
        ours.settimeout(SECONDS)
        self._socket = ours
        self._stream = ours.makefile("rw", encoding="utf-8")

    def run(self, item: pytest.Item, following: str | None) -> list[Any]:
        """Reports of one item. EOFError or TimeoutError if the process does not answer."""
        json.dump({"run": item.nodeid, "next": following}, self._stream)
        self._stream.write("\n")
        self._stream.flush()
        reports = []
        for line in self._stream:
            message = json.loads(line)
            if "done" in message:
                return reports
            data = message["report"]
            for field in ("longrepr", "location"):  # JSON has no tuples: that of a skip is one
                if isinstance(data[field], list):
                    data[field] = tuple(data[field])
            hook = self._config.hook
            reports.append(hook.pytest_report_from_serializable(config=self._config, data=data))
        raise EOFError("the process of this transport has ended")

    def close(self) -> None:
        """Lets it end its session, or kills it after a timeout."""
        self._stream.close()
        self._socket.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill(self) -> None:
        """After a test that did not end."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


def _children(config: pytest.Config) -> dict[str, Child]:
    return config.stash.setdefault(_KEY, {})


def _failed(item: pytest.Item, why: str) -> pytest.TestReport:
    return pytest.TestReport(
        item.nodeid, item.location, {}, "failed", f"over {transport_of(item)}: {why}", "call"
    )


def run_apart(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs an item in its transport's process. False if it must run in this process."""
    name = transport_of(item)
    if name not in APART or item.config.getoption("--relay") is not None:
        return False
    children = _children(item.config)
    if name not in children:
        files = {i.path for i in item.session.items if transport_of(i) == name}
        children[name] = Child(item.config, name, sorted(files))
    following = nextitem.nodeid if nextitem and transport_of(nextitem) == name else None
    try:
        reports = children[name].run(item, following)
    except (EOFError, TimeoutError, OSError, ValueError) as error:
        children.pop(name).kill()
        reports = [_failed(item, f"{type(error).__name__} {error}")]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Shared fixtures of the last local item must not be kept for the next one.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def close_children(config: pytest.Config) -> None:
    """Ends all processes."""
    for child in _children(config).values():
        child.close()
    _children(config).clear()
