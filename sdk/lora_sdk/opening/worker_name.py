"""Names of workers that compute prompts: the values of `prefill`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from lora_sdk.arguments.option import ArgumentError
from lora_sdk.plan.partition import BOARD_COUNTS

EXPECTED = (
    "'cpu', 'boards:N' with N of 1, 2, 4, 8, 16, 32 or 64, 'boards:URI,URI,...', 'cuda:N' or "
    "'torch:DEVICE'"
)
MAX_SOCKET = 107  # bytes of a Unix socket's path
FAST = "'cpu', 'cuda:N' or 'vllm:SOCKET' in the fast mode"


@dataclass(frozen=True)
class WorkerName:
    """A parsed name: `boards` boards, emulated ones where `devices` is empty; or torch's
    `device`, with CUDA `kernels` or by its own operations; or the `socket` of a vLLM server."""

    text: str
    boards: int
    devices: tuple[str, ...] = ()
    device: str | None = None
    kernels: bool = False
    socket: str | None = None


def parse_worker(text: str, fast: bool = False) -> WorkerName:
    """The worker of this name. RequestError: no worker has it, or an URI of its boards is wrong."""
    cuda = re.fullmatch(r"cuda(:[0-9]{1,3})?", text) is not None
    if fast:
        if text == "cpu" or cuda:
            return WorkerName(text, 0, device=text)
        kind, _, path = text.partition(":")
        if kind == "vllm" and 0 < len(os.fsencode(path)) <= MAX_SOCKET and "\0" not in path:
            return WorkerName(text, 0, socket=path)
        raise ArgumentError("prefill", text, FAST)
    if cuda:
        return WorkerName(text, 0, device=text, kernels=True)
    from lora_host.device_uri import check_uri

    kind, colon, rest = text.partition(":")
    if text == "cpu":
        return WorkerName(text, 1)
    if kind == "torch" and re.fullmatch(r"[a-z]{1,16}(:[0-9]{1,3})?", rest):
        return WorkerName(text, 0, device=rest)
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
