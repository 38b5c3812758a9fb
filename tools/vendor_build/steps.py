"""The steps of a build that run the vendor's tools. None of them has been run with these tools
here: each says so when it begins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lora_host import axlf, container_check, vrtbin
from lora_host.alveo_container import LINK_KERNELS
from lora_host.errors import OverlayError
from lora_host.naming import counted
from lora_host.xclbin import read_xclbin
from tools.vendor_build import aurora_flow
from tools.vendor_build.component import check_component
from tools.vendor_build.errors import BuildError
from tools.vendor_build.files import SCRIPTS
from tools.vendor_build.plan import Plan, required_vrtbin, required_xclbin

FROM = {
    "vivado": "source settings64.sh of Vivado (2022.1 or later)",
    "v++": "source settings64.sh of Vitis (2022.1 or later)",
    "slashkit": "install the linker of SLASH (https://github.com/Xilinx/SLASH, linker/)",
    "git": "apt-get install git",
    "make": "apt-get install make",
    "tar": "apt-get install tar",
}
VIVADO_V80 = "source settings64.sh of Vivado (2025.1, the release that SLASH's README names)"


@dataclass(frozen=True)
class Build:
    """A plan and where it is built; `aurora`: the checkout of AuroraFlow, for links."""

    plan: Plan
    folder: Path
    aurora: Path | None = None
    jobs: int = 4

    @property
    def links(self) -> bool:
        """Whether link cores are packed too."""
        return self.plan.row.links


def tools_for(build: Build, target: str) -> list[str]:
    """Programs that a target runs."""
    linkers = {"xclbin": ["v++"], "vrtbin": ["slashkit"]}.get(target, [])
    more = ["git", "make", "tar"] if build.links and linkers else []
    return ["vivado", *linkers, *more]


def check_possible(build: Build, target: str) -> None:
    """BuildError where no tool could build it."""
    if build.links and target == "vrtbin":
        raise BuildError(
            "link cores of the V80: slashkit's region for kernels has no transceiver ports "
            "(docs/vendor_build.md); KERNEL=control builds without links, `region` makes the cores"
        )
    board = build.plan.overlay.board
    if build.links and target == "xclbin" and (board.shell is None or board.shell.cages is None):
        raise BuildError(
            f"link cores of the {board.name}: AuroraFlow is for the U280's cages, and "
            f"boards/{board.name}.yaml knows no pins of this shell's (docs/vendor_build.md); "
            "KERNEL=control builds without links"
        )


def check_tools(build: Build, target: str) -> None:
    """BuildError that names all programs that are missing, with AuroraFlow's folder where it is,
    before any of them runs for hours."""
    missing = [name for name in tools_for(build, target) if shutil.which(name) is None]
    if missing:
        known = FROM if build.plan.overlay.board.shell else {**FROM, "vivado": VIVADO_V80}
        hints = "; ".join(f"{name}: {known[name]}" for name in missing)
        absent = ""
        if build.links and target == "xclbin" and build.aurora and not build.aurora.is_dir():
            absent = f"; and {aurora_flow.no_folder(build.aurora)}"
        raise BuildError(f"{', '.join(missing)}: not found in PATH; {hints}{absent}", usage=True)
    if build.links and target == "xclbin":
        if build.aurora is None:
            raise BuildError(
                f"AuroraFlow ({aurora_flow.LICENCE}): no checkout named; {aurora_flow.FETCH}, "
                f"and set AURORAFLOW=DIR",
                usage=True,
            )
        aurora_flow.check_checkout(build.aurora)
        aurora_flow.lane_rate(build.plan.overlay)


def package(build: Build) -> None:
    """Packs the kernel, and compares what the packager has written with the manifest."""
    _clear(build.folder / "ip", build.folder / "project")
    plan = build.folder / "plan.tcl"
    _run("packaging", build.folder, ["vivado", "-mode", "batch",
        "-source", str(SCRIPTS / "package.tcl"),
                                     "-tclargs", str(plan)])  # fmt: skip
    found = check_component(build.plan, build.folder / "ip" / "component.xml")
    _refuse("ip/component.xml", found)


def region_parts(build: Build) -> Path:
    """Makes the link cores and the decoupler that a region of the V80 with links needs; nothing
    here puts them into one (docs/vendor_build.md)."""
    folder = build.folder / "region"
    _clear(folder)
    script, plan = SCRIPTS / "region_parts.tcl", build.folder / "plan.tcl"
    _run("link cores and decoupler", build.folder, [
        "vivado", "-mode", "batch", "-source", str(script), "-tclargs", str(plan),
    ])  # fmt: skip
    return folder


def link_xclbin(build: Build) -> Path:
    """Links an xclbin; the container is compared with the manifest."""
    objects = [
        build.folder / f"{build.plan.name}.xo",
        *(_aurora_objects(build) if build.links else ()),
    ]
    out = build.folder / f"{build.plan.overlay.name}.xclbin"
    out.unlink(missing_ok=True)
    _run("linking", build.folder, [
        "v++", "--link", "--target", "hw", "--config", "link.cfg", "--temp_dir", "link",
        "--save-temps",
        "--jobs", str(build.jobs), "--output", str(out), *map(str, objects),
    ])  # fmt: skip
    check_xclbin(build.plan, out)
    return out


def link_vrtbin(build: Build) -> Path:
    """Links a vrtbin; the archive is compared with the manifest."""
    out = build.folder / f"{build.plan.overlay.name}.vrtbin"
    out.unlink(missing_ok=True)
    _run("linking", build.folder, [
        "slashkit", "link", "--config", "link.cfg",
        "--kernels", str(build.folder / "ip" / "component.xml"),
        "--out", str(out), "--platform", "hw", "--clock-hz", str(build.plan.overlay.clock_hz),
        "--jobs", str(build.jobs),
    ])  # fmt: skip
    check_vrtbin(build.plan, out)
    return out


def check(build: Build) -> Path:
    """Compares what was linked with the manifest, as after linking: for one that was changed since,
    as register bases that the linker chose."""
    alveo = build.plan.overlay.board.shell is not None
    path = build.folder / f"{build.plan.overlay.name}.{'xclbin' if alveo else 'vrtbin'}"
    (check_xclbin if alveo else check_vrtbin)(build.plan, path)
    return path


def check_xclbin(plan: Plan, path: Path) -> None:
    """BuildError with all differences between a container and what the kernel needs."""
    try:
        container = read_xclbin(path)
    except OverlayError as cause:
        raise BuildError(f"{cause}; did the linker write it?") from cause
    found = [
        str(one)
        for one in container_check.differences(container, plan.overlay, required_xclbin(plan))
    ]
    if container_check.is_emulation(container) or axlf.BITSTREAM not in container.sections:
        found.append("no bitstream in it")
    _refuse(str(path), found)


def check_vrtbin(plan: Plan, path: Path) -> None:
    """The same for an archive."""
    try:
        archive = vrtbin.read_vrtbin(path)
    except OverlayError as cause:
        raise BuildError(f"{cause}; did the linker write it?") from cause
    found = vrtbin.differences(archive, plan.overlay, required_vrtbin(plan))
    if archive.emulation or archive.platform != "Hardware":
        found.append(f"platform {archive.platform} found, Hardware with a bitstream expected")
    _refuse(str(path), found)


def _aurora_objects(build: Build) -> list[Path]:
    assert build.aurora is not None
    copy, out = build.folder / "aurora_flow", build.folder / "aurora_build"
    _clear(copy, out)
    aurora_flow.export(build.aurora, build.plan.overlay, copy)
    variables = aurora_flow.arguments(build.plan.overlay, build.plan.part, out)
    _run("packing AuroraFlow", build.folder, ["make", "-C", str(copy), "aurora_hw", *variables])
    return [out / f"aurora_flow_hw_{port}.xo" for port in range(len(LINK_KERNELS))]


def _refuse(what: str, differences: list[str]) -> None:
    if differences:
        lines = "".join(f"\n  {line}" for line in differences)
        raise BuildError(
            f"{what}: {counted(len(differences), 'difference')} from the manifest:{lines}"
        )


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _run(what: str, folder: Path, command: Sequence[str]) -> None:
    print(f"{what} (untried with this tool): {' '.join(command)}", file=sys.stderr, flush=True)
    try:
        status = subprocess.run(command, cwd=folder).returncode
    except OSError as cause:
        raise BuildError(f"{what}: {command[0]}: {cause.strerror}") from cause
    if status:
        raise BuildError(
            f"{what}: {command[0]} ended with status {status}; its output is above, logs in "
            f"{folder}"
        )
