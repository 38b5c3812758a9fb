"""`lora program`: loads an overlay and reads back the boards' identity."""

from __future__ import annotations

import click

from lora_sdk.cli.boards_flags import device_flags, overlay_for
from lora_sdk.cli.folding import show

EXAMPLES = """\b
Examples:
  lora program --device xrt:0 --overlay lora_q_u280
  lora program --device emu:u280
"""


@click.command("program", epilog=EXAMPLES)
@device_flags
def program(devices: tuple[str, ...], overlay: str | None) -> None:
    """Load an overlay on boards and check that it runs there: ABI, board kind, firmware CRC."""
    from lora_host.cluster import Cluster

    chosen = overlay_for(overlay, devices, None)
    with Cluster.open(devices=devices, overlay=chosen) as cluster:
        for info in cluster.infos:
            show(
                f"{info.address}: {chosen.name}, ABI {chosen.abi}, firmware "
                f"{chosen.image_crc:#010x}, serial {info.serial}"
            )
