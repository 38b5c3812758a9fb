"""The configuration file of the vendor's linker (v++ --link --config), from the manifest: kernels,
ports and their banks, streams to the link cores, clock. The linker chooses the register bases:
`lora inspect` shows them, to be entered in the manifest."""

from __future__ import annotations

from .alveo_container import (
    CONTROL_KERNEL,
    LINK_KERNELS,
    PLATFORM,
    describe,
    instance_name,
)
from .kernel_metadata import GLOBAL
from .overlay import Overlay


def linker_config(overlay: Overlay) -> str:
    """Text of the .cfg file. OverlayError if the board does not use xclbin."""
    parts = describe(overlay)
    control = parts.kernels[0]
    tags = [memory.tag for memory in parts.memories]
    pointers = [argument for argument in control.arguments if argument.qualifier == GLOBAL]
    unit = instance_name(CONTROL_KERNEL)
    mhz = overlay.clock_hz // 1_000_000
    lines = [
        f"# {overlay.title}: generated from its manifest by 'lora overlay build'",
        f"platform={PLATFORM}",
        f"kernel_frequency={mhz}",
        "",
        "[connectivity]",
        *(f"nk={kernel.name}:1:{kernel.instances[0][0]}" for kernel in parts.kernels),
        *(f"sp={unit}.{a.name}:{tag}" for a, tag in zip(pointers, tags, strict=True)),
    ]
    for port, kernel in enumerate(LINK_KERNELS):
        core = instance_name(kernel)
        lines += [f"sc={unit}.tx{port}:{core}.tx_axis", f"sc={core}.rx_axis:{unit}.rx{port}"]
        lines += [f"connect=io_clk_qsfp{port}_refclkb_00:{core}/gt_refclk_{port}"]
        lines += [f"connect={core}/gt_port:io_gt_qsfp{port}_00"]
        lines += [f"connect={core}/init_clk:ii_level0_wire/ulp_m_aclk_freerun_ref_00"]
    return "\n".join(lines) + "\n"
