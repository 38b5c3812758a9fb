"""Names of workers that compute prompts: the values of `prefill`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lora_sdk.arguments.option import ArgumentError
from lora_sdk.plan.partition import BOARD_COUNTS

EXPECTED = "'cpu', 'boards:N' with N of 1, 2, 4 or 8, or 'boards:URI,URI,...'"
FAST = "'cpu' or 'cuda:N' in the fast mode"


@dataclass(frozen=True)
class WorkerName:
    """A parsed name: `boards` boards, emulated ones where `devices` is empty; or, in mode "fast",
    torch's device `text`."""

    text: str
    boards: int
    devices: tuple[str, ...] = ()


def parse_worker(text: str, fast: bool = False) -> WorkerName:
    """The worker of this name. RequestError: no worker has it, or an URI of its boards is wrong."""
    if fast:
        if text == "cpu" or re.fullmatch(r"cuda(:[0-9]{1,3})?", text):
            return WorkerName(text, 0)
        raise ArgumentError("prefill", text, FAST)
    if text.startswith("cuda"):
        raise ArgumentError("prefill", text, f"{EXPECTED}; a GPU needs the fast mode")
    from lora_host.cluster_file import check_uri

    kind, colon, rest = text.partition(":")
    if text == "cpu":
        return WorkerName(text, 1)
    if kind != "boards" or not colon:
        raise ArgumentError("prefill", text, EXPECTED, optional=True)
    devices = () if re.fullmatch(r"[0-9]{1,9}", rest) else tuple(rest.split(","))
    boards = len(devices) or int(rest)
    if boards not in BOARD_COUNTS:
        raise ArgumentError("prefill", text, EXPECTED, optional=True)
    if "" in devices:
        raise ArgumentError("prefill", text, EXPECTED, optional=True)
    for uri in devices:
        check_uri(uri)
    return WorkerName(text, boards, devices)
