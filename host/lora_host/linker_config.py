"""The configuration file of the vendor's linker (v++ --link --config), from the manifest: kernels,
ports and their banks, streams to the link cores, clock. The linker chooses the register bases:
`lora inspect` shows them, to be entered in the manifest."""

from __future__ import annotations

from .alveo_container import Description, describe, instance_name, shell_of
from .control_alone import CONTROL_KERNEL, LINK_KERNELS
from .kernel_metadata import GLOBAL
from .overlay import Overlay


def linker_config(overlay: Overlay, parts: Description | None = None, platform: str = "") -> str:
    """Text of the .cfg file; of `parts` alone where a kernel has not all. `platform`: of the
    linker, in place of the board's. OverlayError if the board does not use xclbin."""
    parts = parts or describe(overlay)
    control = parts.kernels[0]
    names = {a.id: a.name for a in control.arguments if a.qualifier == GLOBAL}
    unit = instance_name(CONTROL_KERNEL)
    mhz = overlay.clock_hz // 1_000_000
    lines = [
        f"# {overlay.title}: generated from its manifest by 'lora overlay build'",
        f"platform={platform or shell_of(overlay).linker}",
        f"kernel_frequency={mhz}",
        "",
        "[connectivity]",
        *(f"nk={kernel.name}:1:{kernel.instances[0][0]}" for kernel in parts.kernels),
        *(
            f"sp={unit}.{names[row.argument]}:{parts.memories[row.memory].tag}"
            for row in parts.connections
        ),
    ]
    cages = shell_of(overlay).cages
    there = {kernel.name for kernel in parts.kernels}
    for port, kernel in enumerate(LINK_KERNELS):
        if kernel not in there:
            continue
        core = instance_name(kernel)
        lines += [f"sc={unit}.tx{port}:{core}.tx_axis", f"sc={core}.rx_axis:{unit}.rx{port}"]
        if cages is None:
            pins = f"gt_refclk_{port}, gt_port and init_clk of {core}"
            lines += [f"# {pins}: add connect= lines with this shell's pins, not known here"]
            continue
        lines += [f"connect={cages.clock.format(port=port)}:{core}/gt_refclk_{port}"]
        lines += [f"connect={core}/gt_port:{cages.lanes.format(port=port)}"]
        lines += [f"connect={core}/init_clk:{cages.free_clock}"]
    return "\n".join(lines) + "\n"
