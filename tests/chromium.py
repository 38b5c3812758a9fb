"""Chromium without a window, driven through its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--hide-scrollbars", "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)  # fmt: skip


class Page:
    """A tab. `complaints`: what its console has said in warning or error; `requested`: URLs, once
    `Network.enable` was called."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self.complaints: list[str] = []
        self.requested: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol to this tab."""
        return self._browser.call(method, self._session, self._event, **parameters)

    def _event(self, event: dict[str, Any]) -> None:
        name, told = event["method"], event["params"]
        if name == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self.complaints.append(told["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))

    def shape(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window in CSS pixels, and the colours that the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=wanted)

    def close(self) -> None:
        """Close the tab, and take what it said until now."""
        self.value("0")
        self._browser.call("Target.closeTarget", targetId=self._target)

    def open(self, url: str) -> None:
        """Go there."""
        self.call("Page.navigate", url=url)

    def reload(self) -> None:
        """Load the page again, and wait until the old one is gone."""
        self.value("window.old = true")
        self.call("Page.reload")
        self.until("window.old === undefined")

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression; promises are waited for."""
        told = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        tried = f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        while not self.value(tried):
            shown = self.value("document.body && document.body.innerText")
            assert time.monotonic() < end, f"{expression} stays false on a page that shows {shown}"
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """A key by its name. `modifiers`: 2 Ctrl, 8 Shift."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers,
                **more,
            )  # fmt: skip

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        told = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(told["data"]))


class Browser:
    """One process. Commands and answers are JSON, ended by a zero byte."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._rest = 0, b""

    def page(self) -> Page:
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        told = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, target, told["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        return page

    def call(
        self, method: str, session: str | None = None, on_event: Any = None, **parameters: Any
    ) -> dict[str, Any]:
        """A command's answer. Events that come meanwhile go to `on_event`."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            if on_event is not None and told.get("sessionId") == session and "method" in told:
                on_event(told)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 20)
            assert part, "chromium ended"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Browser]:
    """A running Chromium. It ends with the block."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    def pipes() -> (
        None
    ):  # it reads commands from 3 and answers on 4, which either pipe may have now
        high = [fcntl(end, F_DUPFD, 5) for end in (theirs_in, theirs_out)]
        for wanted, held in zip((3, 4), high, strict=True):
            os.dup2(held, wanted)

    child = subprocess.Popen(
        [chromium, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        running = Browser(ours_out, ours_in)
        yield running
        with suppress(AssertionError, OSError):
            running.call("Browser.close")
        child.wait(20)
    finally:
        child.kill()
        child.wait()
        os.close(ours_in)
        os.close(ours_out)
