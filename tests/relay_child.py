"""The plugin of the pytest that runs one transport's tests; a socket says which."""

from __future__ import annotations

import json
import socket
from typing import Any, TextIO

import pytest

_STREAM = pytest.StashKey[TextIO]()


def _stream(config: pytest.Config) -> TextIO:
    if _STREAM not in config.stash:
        connection = socket.socket(fileno=int(config.getoption("--relay")))
        config.stash[_STREAM] = connection.makefile("rw", encoding="utf-8")
    return config.stash[_STREAM]


def _say(config: pytest.Config, message: dict[str, Any]) -> None:
    json.dump(message, _stream(config))
    _stream(config).write("\n")
    _stream(config).flush()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Items by name until the socket is closed."""
    items = {item.nodeid: item for item in session.items}
    for line in _stream(session.config):
        command = json.loads(line)
        item = items[command["run"]]
        following = items.get(command["next"]) if command["next"] else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _say(session.config, {"done": item.nodeid})
    return True


class Reporter:
    """Sends every report to the parent."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        _say(self._config, {"report": data})


def pytest_configure(config: pytest.Config) -> None:
    """The reporter knows its config."""
    config.pluginmanager.register(Reporter(config), "relay_reporter")
