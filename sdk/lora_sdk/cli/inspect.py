"""`lora inspect FILE`: the contents of a vendor container, and whether it matches an overlay's
manifest; or of a model. No board and no runtime is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lora_host.axlf import MAGIC as XCLBIN_MAGIC
from lora_host.errors import OverlayError
from lora_host.overlay import Overlay, load_overlay
from lora_host.regular_file import names_no_file, open_regular
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.inspect_folder import folder_table, inspect_folder
from lora_sdk.cli.inspect_gguf import gguf_table, inspect_gguf
from lora_sdk.cli.inspect_vrtbin import inspect_vrtbin, vrtbin_table
from lora_sdk.cli.inspect_xclbin import inspect_xclbin, xclbin_table
from lora_sdk.gguf.file import MAGIC as GGUF_MAGIC

Inspect = Callable[[Path, Overlay | None], dict[str, Any]]
Table = Callable[[dict[str, Any]], str]

# (first bytes of the file, function for its facts, function for their text)
KINDS: tuple[tuple[bytes, Inspect, Table], ...] = (
    (XCLBIN_MAGIC, inspect_xclbin, xclbin_table),
    (GGUF_MAGIC, inspect_gguf, gguf_table),
    # a tar begins with its first member's name; it may be compressed with gzip
    *(
        (first, inspect_vrtbin, vrtbin_table)
        for first in (b"system_map.xml", b"design.pdi", b"images/", b"report_", b"./", b"\x1f\x8b")
    ),
)


EXAMPLES = """\b
Examples:
  lora inspect FILE.xclbin --overlay lora_f_u280
  lora inspect model.gguf --json
  lora inspect models/demo
"""


@click.command("inspect", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overlay", "name", help="compare with this overlay's manifest")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def inspect(file: Path, name: str | None, as_json: bool) -> None:
    """Show kernels, arguments, banks and clocks of a container FILE, or what a model consists of:
    a GGUF file or a Hugging Face folder.

    With --overlay, all differences from the manifest are listed, found against expected. The exit
    code is 1 if there are any."""
    chosen = load_overlay(name) if name else None
    facts_of, table = kind_of(file)
    facts = facts_of(file, chosen)
    click.echo(json.dumps(facts, indent=2) if as_json else for_people(table(facts)))
    if facts.get("differences"):
        raise SystemExit(1)


def kind_of(file: Path) -> tuple[Inspect, Table]:
    """The functions for a file, by its first bytes. OverlayError for an unknown format."""
    if (file / "manifest.yaml").is_file() and not (file / "config.json").is_file():
        raise _is_an_overlay(file)
    if file.is_dir():
        return inspect_folder, folder_table
    try:
        with open_regular(file) as stream:
            start = stream.read(512)
    except OSError as cause:
        missing = names_no_file(cause)
        raise OverlayError(f"{file}: cannot be read: {cause.strerror}", usage=missing) from cause
    for magic, facts_of, table in KINDS:
        if start.startswith(magic):
            return facts_of, table
    raise OverlayError(
        f"{file}: begins with {start[:8]!r}, a container's first bytes expected; name an xclbin, "
        "a vrtbin or a GGUF file"
    )


def _is_an_overlay(folder: Path) -> OverlayError:
    container = load_overlay(folder).container
    todo = "has no container; 'lora overlay build' writes one"
    if container is not None:
        todo = f"its container is {container}; name that, with --overlay {folder} to compare them"
    return OverlayError(f"{folder}: is an overlay, no model; {todo}", usage=True)
