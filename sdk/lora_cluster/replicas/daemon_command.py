"""The command that serves boards at an address, and what it says when it serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lora_cluster.replicas.daemon_boards import split_address
from lora_host.boardd.settings import emulation_words
from lora_host.boardd.status import keys_folder

PROGRAM = "from lora_sdk.cli.main import main; main()"


def serve_command(
    address: str, boards: Sequence[str], cables: Sequence[str] = (), options: Sequence[str] = ()
) -> list[str]:
    """`lora boardd serve`, which ends with its standard input. `cables` and `options`, more of its
    words, are for emulated boards."""
    remote = split_address(address)
    where = ["--socket", remote.where]
    if remote.has_keys:
        where = ["--listen", remote.where, "--keys", str(keys_folder())]
    words = [sys.executable, "-c", PROGRAM, "boardd", "serve", "--until-eof", "--json", *where]
    for uri in boards:
        words += ["--board", uri]
    joined = [word for cable in cables for word in ("--cable", cable)]
    return [*words, *emulation_words(boards, [*joined, *options])]


def served_boards(told: str | None) -> tuple[str, ...]:
    """Names of the boards that the command has said it serves, () before it has."""
    with suppress(ValueError, TypeError, KeyError):
        said: Any = json.loads(told or "")
        return tuple(str(name) for name in said["boards"])
    return ()
