"""The files of a build before any tool runs."""

from __future__ import annotations

from pathlib import Path

from lora_host.linker_config import linker_config
from tools.vendor_build.errors import BuildError
from tools.vendor_build.firmware import rom
from tools.vendor_build.kernel_xml import kernel_xml
from tools.vendor_build.kernels import RTL
from tools.vendor_build.plan import Plan, required_vrtbin, required_xclbin
from tools.vendor_build.tcl import word
from tools.vendor_build.tcl_plan import clock_xdc, plan_tcl
from tools.vendor_build.top import top

SCRIPTS = RTL / "vendor" / "tcl"


def write_files(plan: Plan, folder: Path, platform: str = "") -> list[Path]:
    """Writes them into `folder`; `platform`: of v++ in place of the board's. BuildError where the
    folder has a name that make and the linkers do not take."""
    if any(one.isspace() for one in str(folder)):
        raise BuildError(
            f"build folder {str(folder)!r}: a space found; the linkers take none: set "
            f"BUILD=/path/without/one",
            usage=True,
        )
    generated = {f"{plan.name}.sv": top(plan), "firmware_rom.sv": rom(plan.firmware)}
    places = [folder / name for name in generated]
    texts = generated | {
        "clock.xdc": clock_xdc(plan),
        "plan.tcl": plan_tcl(plan, folder, places),
        "hook.tcl": hook(folder),
        "link.cfg": link_config(plan, folder, platform),
    }
    if plan.overlay.board.shell is not None:
        texts["kernel.xml"] = kernel_xml(plan).decode()
    else:
        texts["region.tcl"] = region(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as cause:
        raise BuildError(f"{folder}: cannot be written: {cause.strerror}") from cause
    return [folder / name for name in texts]


def hook(folder: Path) -> str:
    """What the implementation runs before opt_design: bounds and floorplan."""
    lines = [f"source {word(folder / 'plan.tcl')}", f"source {word(SCRIPTS / 'crossings.tcl')}"]
    return "\n".join([*lines, "constrain $plan", ""])


def region(folder: Path) -> str:
    """For the V80: sourced in the project of the reconfigurable region, before synthesis."""
    return f"set_property STEPS.OPT_DESIGN.TCL.PRE {word(folder / 'hook.tcl')} [get_runs impl_1]\n"


def link_config(plan: Plan, folder: Path, platform: str) -> str:
    """The linker's .cfg: of v++ for Alveo cards with an xclbin, of slashkit for the V80."""
    if plan.overlay.board.shell is not None:
        config = linker_config(plan.overlay, required_xclbin(plan), platform)
        prop = f"prop=run.impl_1.STEPS.OPT_DESIGN.TCL.PRE={folder / 'hook.tcl'}"
        return f"{config}\n[vivado]\n{prop}\n"
    kernels = required_vrtbin(plan)
    lines = [
        f"# {plan.overlay.title}: made from its manifest",
        "[connectivity]",
        *(f"nk={kernel.name}:1:{kernel.name}" for kernel in kernels),
        *(f"sp={plan.name}.{port}:{target}" for port, target in kernels[0].connections),
    ]
    for port, core in enumerate(kernels[1:]):
        lines += [
            f"stream_connect={plan.name}.tx{port}:{core.name}.tx_axis",
            f"stream_connect={core.name}.rx_axis:{plan.name}.rx{port}",
        ]
    for kernel in kernels:
        lines += ["[clock]", f"krnl={kernel.name}", f"freqhz={plan.overlay.clock_hz}"]
    return "\n".join([*lines, "[user_region]", f"pre_synth={folder / 'region.tcl'}", ""])
