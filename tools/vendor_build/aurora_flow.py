"""AuroraFlow, the link cores of the U280: the user's checkout, at the commit that is known here.

It is not part of this project: https://github.com/pc2/AuroraFlow, Apache License 2.0, Paderborn
Center for Parallel Computing and its authors."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lora_host.overlay import Overlay
from tools.vendor_build.errors import BuildError

URL = "https://github.com/pc2/AuroraFlow"
LICENCE = "Apache-2.0"
COMMIT = "261c22cce2a260d0eb965def8b90ffdd77d669af"
LANES = 4
RATE = 25_781_250_000  # bits a second and lane that it is written for, from 161.1328125 MHz
TOLERANCE = 0.01
FETCH = f"git clone {URL} DIR && git -C DIR checkout {COMMIT}"


@dataclass(frozen=True)
class Edit:
    """What is changed in a copy of a file, `count` times."""

    file: str
    old: str
    new: str
    count: int


def lane_rate(overlay: Overlay) -> int:
    """Bits a second and lane: AuroraFlow's, divided by a power of two, so that the transceivers'
    PLL stays as it is. BuildError where none is within 1% of the manifest's."""
    wanted = overlay.links.lane_bits_per_second
    rates = [RATE >> shift for shift in range(4)]
    best = min(rates, key=lambda rate: abs(rate - wanted))
    if abs(best - wanted) > TOLERANCE * wanted:
        shown = ", ".join(f"{rate / 1e9:.6g}" for rate in rates)
        raise BuildError(
            f"{overlay.path}: links.lane_bits_per_second: {wanted / 1e9:g} Gb/s found, one of "
            f"{shown} within 1% "
            "expected: AuroraFlow's rate divided by a power of two"
        )
    return best


def edits(overlay: Overlay) -> list[Edit]:
    """Changes to the copy: the lane rate, and TKEEP of a port of 32 bytes, which has 64 bits
    there."""
    rate = f"{lane_rate(overlay) / 1e9:.10g}"
    found = [
        Edit(
            "tcl/create_aurora_ip.tcl",
            "CONFIG.C_LINE_RATE {25.78125}",
            f"CONFIG.C_LINE_RATE {{{rate}}}",
            1,
        )
    ]
    if overlay.links.port_bytes != 64:
        bits = f"[{overlay.links.port_bytes - 1}:0]"
        for way in ("rx", "tx"):
            name = f"{way}_axis_tkeep,"
            for file, old in (
                ("rtl/aurora_flow_io.v", "[63:0]   "),
                ("rtl/aurora_flow.v.template.v", "[63:0]   "),
            ):
                found.append(Edit(file, f"{old}{name}", f"{bits}   {name}", 1))
    return found


def arguments(overlay: Overlay, part: str, build: Path) -> list[str]:
    """Variables of its Makefile."""
    if overlay.links.lanes != LANES or overlay.links.port_bytes not in (32, 64):
        raise BuildError(
            f"{overlay.path}: links: {overlay.links.lanes} lanes, {overlay.links.port_bytes} "
            f"B found; {LANES} lanes, "
            "32 or 64 B expected: AuroraFlow has no others"
        )
    return [
        f"BUILD_DIR={build}", f"PART={part}", f"USE_FRAMING={int(overlay.links.framing)}",
        f"FIFO_WIDTH={overlay.links.port_bytes}",
    ]  # fmt: skip


def check_checkout(checkout: Path) -> None:
    """BuildError with the way out where it is missing, or has not the commit."""
    if not checkout.is_dir():
        raise BuildError(no_folder(checkout), usage=True)
    done = _git(checkout, "rev-parse", "--show-toplevel")
    if done.returncode or Path(done.stdout.strip()) != checkout.resolve():
        said = done.stderr.strip().splitlines()[:1]
        raise BuildError(
            f"AuroraFlow: {checkout} is no git checkout{': ' + said[0] if said else ''}; {FETCH}",
            usage=True,
        )
    if _git(checkout, "cat-file", "-e", f"{COMMIT}^{{commit}}").returncode:
        head = _git(checkout, "rev-parse", "HEAD").stdout.strip() or "none"
        raise BuildError(
            f"AuroraFlow: {checkout}: commit {head} found, {COMMIT} expected; git -C "
            f"{checkout} fetch origin {COMMIT}"
        )


def no_folder(checkout: Path) -> str:
    """What is said of a checkout that is not there."""
    return f"AuroraFlow: no folder {checkout}; {FETCH}, and set AURORAFLOW=DIR"


def export(checkout: Path, overlay: Overlay, folder: Path) -> None:
    """Copies the commit, whatever the working tree holds, and changes the copy."""
    check_checkout(checkout)
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "-C", checkout, "archive", COMMIT], capture_output=True)
    unpacked = subprocess.run(
        ["tar", "-x", "-C", folder], input=archive.stdout, capture_output=True
    )
    if archive.returncode or unpacked.returncode:
        said = (archive.stderr or unpacked.stderr).decode(errors="replace").strip()
        raise BuildError(f"AuroraFlow: {checkout} cannot be copied to {folder}: {said}")
    for edit in edits(overlay):
        apply(folder, edit)


def apply(folder: Path, edit: Edit) -> None:
    """One change. BuildError where the text is not there as often as expected."""
    path = folder / edit.file
    try:
        text = path.read_text()
    except OSError as cause:
        raise BuildError(
            f"AuroraFlow: {edit.file}: {cause.strerror}; is {COMMIT[:12]} complete?"
        ) from cause
    if text.count(edit.old) != edit.count:
        raise BuildError(
            f"AuroraFlow: {edit.file}: {edit.old!r} {text.count(edit.old)} times found, "
            f"{edit.count} expected: another "
            "version than the one that is known here"
        )
    path.write_text(text.replace(edit.old, edit.new))


def _git(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", checkout, *command], capture_output=True, text=True)
    except OSError as cause:
        raise BuildError(f"git: cannot be run: {cause.strerror}") from cause
