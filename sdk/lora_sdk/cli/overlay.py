"""`lora overlay build`: generates the container for the runtimes' emulations, and the linker's
configuration, from the manifest."""

from __future__ import annotations

from pathlib import Path

import click

from lora_host.alveo_container import EMULATION_MARK, emulation_container
from lora_host.board_types import MOST_OF_AN_EMULATION
from lora_host.errors import RequestError
from lora_host.linker_config import linker_config
from lora_host.overlay import Overlay, load_overlay, overlay_names
from lora_host.regular_file import read_regular
from lora_host.vrtbin import write_vrtbin
from lora_sdk.cli.folding import show
from lora_sdk.cli.lazy_group import WholeGroup


@click.group("overlay", cls=WholeGroup)
def overlay() -> None:
    """Generate files from an overlay's manifest."""


EXAMPLES = """\b
Examples:
  lora overlay build lora_f_u280 --out DIR
  lora overlay build --check
"""


@overlay.command("build", epilog=EXAMPLES)
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), help="folder; default: the overlay's own")
@click.option("--check", is_flag=True, help="write nothing; exit code 1 if a file is not current")
def build(names: tuple[str, ...], out: Path | None, check: bool) -> None:
    """Write container and linker configuration of the overlays NAMES (default: all).

    The container says "emulation: holds no bitstream". The runtimes' emulations load it, a card
    never does. The vendor's tools link a bitstream with the .cfg file."""
    stale = 0
    for name in names or overlay_names():
        chosen = load_overlay(name)
        show(f"manifest: {chosen.path}")
        for path, content in artefacts(chosen, out or chosen.path.parent):
            if _holds(path, content):
                show(f"{path}: current")
            elif check:
                stale += 1
                show(f"{path}: not current; run 'lora overlay build'")
            elif _may_hold_a_bitstream(path):
                raise RequestError(
                    f"{path}: a container without the emulation's mark, perhaps a bitstream, is "
                    "not replaced; move it, or name another folder with --out"
                )
            else:
                _write(path, content)
                show(f"{path}: written, {len(content)} B")
    if stale:
        raise SystemExit(1)


def artefacts(chosen: Overlay, folder: Path) -> list[tuple[Path, bytes]]:
    """(file, content) of all files generated from one manifest."""
    if chosen.board.shell is None:
        return [(folder / f"{chosen.name}.vrtbin", write_vrtbin(chosen))]
    return [
        (folder / f"{chosen.name}.xclbin", emulation_container(chosen)),
        (folder / f"{chosen.name}.cfg", linker_config(chosen).encode()),
    ]


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_regular(path, len(content)) == content
    except OSError:  # absent, longer, or no regular file
        return False


def _may_hold_a_bitstream(path: Path) -> bool:
    if path.suffix == ".cfg" or not path.exists():
        return False
    try:
        return EMULATION_MARK not in read_regular(path, MOST_OF_AN_EMULATION)
    except OSError:  # longer than any that is written here, or no regular file
        return True


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as cause:
        raise RequestError(f"{path}: cannot be written: {cause.strerror}") from cause
