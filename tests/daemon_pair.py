"""Two board daemons with two boards each, in a ring: each has one cable of its own, two lead to the
other."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from lora_host.boardd.keys import write_keys
from tests.daemons import DaemonProcess

HOST = "127.0.0.1"


class Pair(AbstractContextManager["Pair"]):
    """Both are processes. They serve Unix sockets in `folder`, or TCP with the keys at `keys`, and
    are joined by cables of the same kind. `devices`: the four boards."""

    def __init__(self, folder: Path, keys: Path | None = None) -> None:
        self._folder, self._keys = folder, keys
        self.theirs = DaemonProcess(*self._place("theirs"), "--cable", "0.1-1.0")
        far = f"{self.theirs.addresses[0]}/emu:u280"
        cables = ("0.1-1.0", f"1.1={far}/0.0", f"0.0={far}/1.1")
        options = [word for cable in cables for word in ("--cable", cable)]
        self.ours = DaemonProcess(*self._place("ours"), *options)
        self.devices = (*self.ours.uris, *self.theirs.uris)

    def _place(self, name: str) -> tuple[str, ...]:
        if self._keys is None:
            return "--socket", str(self._folder / f"{name}.sock")
        return "--listen", f"{HOST}:0", "--keys", str(self._keys / HOST)

    def __exit__(self, *_: object) -> None:
        for daemon in (self.ours, self.theirs):
            daemon.__exit__()


def make_keys(folder: Path) -> Path:
    """Keys for daemons on this computer; those of clients are in the folder "client"."""
    write_keys(folder, [HOST])
    return folder
