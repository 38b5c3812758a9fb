"""`lora reset`: resets boards through their runtime and checks that it worked."""

from __future__ import annotations

import time

import click

from lora_sdk.cli.boards_flags import device_flags, overlay_for
from lora_sdk.cli.folding import show

EXAMPLES = """\b
Examples:
  lora reset --device xrt:0 --device xrt:1
"""


@click.command("reset", epilog=EXAMPLES)
@device_flags
def reset(devices: tuple[str, ...], overlay: str | None) -> None:
    """Reset boards, wait until each is back, load the overlay, and run a command on each to check
    the reset. Fails if another process holds a board."""
    from lora_host.lab.reset import reset_boards

    began = time.monotonic()
    for info, crc in reset_boards(devices, overlay_for(overlay, devices, None)):
        took = time.monotonic() - began
        show(
            f"{info.address}: back after {took:.1f} s, serial {info.serial}, checksum {crc:#010x} "
            "right"
        )
