"""From a manifest to a container with a bitstream, by the vendor's tools. Untried with them.

    python -m tools.vendor_build files   --board u280 --kernel control --out DIR   # needs no tool
    python -m tools.vendor_build package --board u280 --kernel control --out DIR   # vivado
    python -m tools.vendor_build xclbin  --board u280 --aurora CHECKOUT --out DIR  # and v++
    python -m tools.vendor_build vrtbin  --board v80 --kernel control --out DIR    # and slashkit
    python -m tools.vendor_build region  --board v80 --out DIR     # its link cores and decoupler
    python -m tools.vendor_build check   --board v80 --kernel control --out DIR    # what was linked

Exit: 0 done, 1 something is missing, failed or differs, 2 wrong use. docs/vendor_build.md has the
steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lora_host.boards import board_names, boards_of, load_board
from lora_host.errors import OverlayError
from lora_host.overlay import load_overlay
from tools.vendor_build import steps
from tools.vendor_build.errors import BuildError
from tools.vendor_build.files import write_files
from tools.vendor_build.kernels import OVERLAYS, ROOT, kernel_row
from tools.vendor_build.plan import Plan, make_plan

CONTAINERS = {"xclbin": "xrt", "vrtbin": "slash"}  # runtime of the boards that load it
TARGETS = CONTAINERS | {"region": "slash"}  # of some boards


def main(given: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(given)
    try:
        made = _build(options)
    except BuildError as error:
        print(f"vendor build: {error}", file=sys.stderr)
        return 2 if error.usage else 1
    except OverlayError as error:
        print(f"vendor build: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("vendor build: interrupted", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(made, indent=1))
    else:
        for path in made["files"]:
            print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.vendor_build", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("target", choices=("files", "package", "region", "check", *CONTAINERS))
    parser.add_argument("--board", required=True, help=" or ".join(board_names()))
    parser.add_argument(
        "--overlay",
        default="",
        help="name in this checkout, folder or manifest; default: lora_f_BOARD",
    )
    parser.add_argument(
        "--kernel", default="card", help="a row of vendor/kernels.yaml; default: card"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="build folder, a path without spaces; default: OVERLAY_KERNEL in "
        "build/vendor, BOARD_KERNEL for lora_f_BOARD",
    )
    parser.add_argument(
        "--aurora", default="", help="checkout of AuroraFlow, for links of Alveo cards"
    )
    parser.add_argument("--platform", default="", help="of v++; default: the board's")
    parser.add_argument("--jobs", type=int, default=4, help="of the linker; default: 4")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _build(options: argparse.Namespace) -> dict[str, Any]:
    plan = _plan(options)
    folder = options.out.absolute() if options.out else default_folder(plan)
    aurora = Path(options.aurora).absolute() if options.aurora else None
    build = steps.Build(plan, folder, aurora, options.jobs)
    if options.target not in ("files", "check"):
        steps.check_possible(build, options.target)
        steps.check_tools(build, options.target)
    files = []
    if options.target != "check":
        files = write_files(plan, folder, options.platform)
    print(f"manifest: {plan.overlay.path}", file=sys.stderr)
    if options.target == "check":
        return _made(plan, [steps.check(build)])
    if options.target == "region":
        return _made(plan, [steps.region_parts(build)])
    if options.target != "files":
        steps.package(build)
        files = [folder / "ip" / "component.xml"]
    if options.target == "xclbin":
        files = [steps.link_xclbin(build)]
    elif options.target == "vrtbin":
        files = [steps.link_vrtbin(build)]
    return _made(plan, files)


def _made(plan: Plan, files: list[Path]) -> dict[str, Any]:
    named = [str(path) for path in files]
    return {
        "overlay": plan.overlay.name, "manifest": str(plan.overlay.path), "kernel": plan.row.name,
        "files": named,
    }  # fmt: skip


def default_folder(plan: Plan) -> Path:
    """Where a build goes that names no folder: another one for each overlay and kernel."""
    overlay, board = plan.overlay.name, plan.overlay.board.name
    owner = board if overlay == f"lora_f_{board}" else overlay
    return ROOT / "build" / "vendor" / f"{owner}_{plan.row.name}"


def overlay_here(name: str) -> str | Path:
    """A bare name is an overlay of this checkout, whatever copy of it is installed."""
    folder = OVERLAYS / name
    return folder if "/" not in name and (folder / "manifest.yaml").is_file() else name


def _plan(options: argparse.Namespace) -> Plan:
    if options.board not in board_names():
        known = ", ".join(board_names())
        raise BuildError(f"BOARD={options.board or '(none)'}: one of {known} expected", usage=True)
    runtime = load_board(options.board).runtime
    expected = TARGETS.get(options.target, runtime)
    if expected != runtime:
        other = next(name for name, served in CONTAINERS.items() if served == runtime)
        takes = " or ".join(board.name for board in boards_of(expected))
        raise BuildError(
            f"BOARD={options.board}: {options.target} is for {takes}; make {other} "
            f"BOARD={options.board}",
            usage=True,
        )
    overlay = load_overlay(overlay_here(options.overlay or f"lora_f_{options.board}"))
    if overlay.board.name != options.board:
        raise BuildError(
            f"OVERLAY={overlay.name}: board {overlay.board.name} found, {options.board} "
            f"expected: the manifest's board",
            usage=True,
        )
    if overlay.channels:
        raise BuildError(
            f"OVERLAY={overlay.name}: columns in a bank each found, which kernels have no channels "
            f"for yet; they run on simulated cards (--device sim:{overlay.board.name})",
            usage=True,
        )
    if "gguf" in overlay.weights:
        raise BuildError(
            f"OVERLAY={overlay.name}: weights in GGUF's blocks found, which no hardware source "
            "multiplies; they run on emulated boards",
            usage=True,
        )
    return make_plan(overlay, kernel_row(options.kernel))


if __name__ == "__main__":
    sys.exit(main())
