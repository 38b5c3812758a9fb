"""Overlays: FPGA designs for boards. Each is a folder with manifest.yaml and a firmware image."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from . import abi, native
from .boards import Board, board_names, load_board
from .data import data_folder
from .errors import OverlayError
from .naming import did_you_mean
from .regular_file import read_regular
from .schema import read_checked

IMAGE_MAGIC = 0x57464C41  # LORA_IMAGE_MAGIC; struct lora_image_header is eight words
MAX_IMAGE = 16 << 20
COLUMN = "column"  # as `merge` of a manifest
MOST_BLOCKS = 255  # that `merge` of struct lora_matrix can say
_HEADER = struct.Struct("<8I")
LINK_TKEEP, LINK_FRAMING, LINK_WIDTH_SHIFT, LINK_WIDTH_MASK = 0x1, 0x2, 2, 0x1FF


@dataclass(frozen=True)
class Tiling:
    """Multipliers of the MPU (rows x columns), tile T_m and VFU lanes. They change no result."""

    array_rows: int
    array_columns: int
    tile: int
    vector_lanes: int


@dataclass(frozen=True)
class LinkParameters:
    """An overlay's links: lanes, bits per second and lane, user port bytes, latency in ns."""

    lanes: int
    lane_bits_per_second: int
    port_bytes: int
    latency_ns: int
    framing: bool


@dataclass(frozen=True)
class Overlay:
    """A checked manifest. Banks are bank indices; no `spill_banks` where all is in HBM.
    `block_base`: register bases of lora_ctrl, link 0 and link 1. `merge`: weight blocks per request
    (the prefetch ratio M), COLUMN: a column tile each, whole in a bank. `weights` and `kv`:
    supported formats of matrices and of the KV cache."""

    name: str
    title: str
    board: Board
    abi: int
    precision: str
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    clock_hz: int
    tiling: Tiling
    onchip_bytes: int
    merge: int | str
    prefill_copy: str
    max_step_rows: int
    max_scratch: int
    max_sequences: int
    control_bank: int
    weight_banks: range
    spill_banks: range
    block_base: tuple[int, int, int]
    links: LinkParameters
    image_path: Path
    image_crc: int
    container: Path | None
    path: Path

    @property
    def channels(self) -> int:
        """Banks that column tiles lie in, a whole one each; 0: tiles are striped by blocks."""
        return len(self.weight_banks) if self.merge == COLUMN else 0

    def request_blocks(self, k: int) -> int:
        """Weight blocks per request of a matrix [k, n]. OverlayError if a command cannot say it."""
        if isinstance(self.merge, int):
            return self.merge
        blocks = -(-k // abi.BLOCK_K)
        if blocks > MOST_BLOCKS:
            raise OverlayError(
                f"overlay {self.name} has column tiles whole in a bank: K = {k} found, at most "
                f"{MOST_BLOCKS * abi.BLOCK_K} expected; take an overlay that merges blocks"
            )
        return blocks

    @property
    def link_configuration(self) -> int:
        """The expected value of a link's configuration register."""
        framing = LINK_FRAMING if self.links.framing else 0
        return LINK_TKEEP | framing | self.links.port_bytes << LINK_WIDTH_SHIFT

    @property
    def link_configuration_mask(self) -> int:
        """Bits of the configuration that must match: framing and width."""
        return LINK_FRAMING | LINK_WIDTH_MASK << LINK_WIDTH_SHIFT

    @cached_property
    def image(self) -> bytes:
        """The firmware image with its header. OverlayError if it is missing, damaged, for another
        board or ABI, or not the image that the manifest names."""
        try:
            image = read_regular(self.image_path, MAX_IMAGE)
        except OSError as cause:
            raise OverlayError(
                f"{self.image_path}: firmware image cannot be read: {cause.strerror}"
            ) from cause
        self._check_image(image)
        return image

    def _check_image(self, image: bytes) -> None:
        def differ(what: str, found: str, expected: str) -> OverlayError:
            return OverlayError(
                f"{self.image_path}: {what} {found} found, {expected} expected; "
                "take the image that belongs to this overlay"
            )

        if len(image) < _HEADER.size:
            raise differ("size", f"{len(image)} B", f"at least {_HEADER.size} B")
        magic, size, abi, kind, code_bytes, code_crc, entry, _ = _HEADER.unpack_from(image)
        if magic != IMAGE_MAGIC:
            raise differ("magic", f"{magic:#010x}", f"{IMAGE_MAGIC:#010x}")
        if size != _HEADER.size or len(image) != size + code_bytes or entry >= code_bytes:
            raise differ("size", f"{len(image)} B", f"{_HEADER.size}+{code_bytes} B")
        if abi != self.abi:
            raise differ("ABI", str(abi), str(self.abi))
        if kind != self.board.kind:
            raise differ("board kind", f"{kind:#x}", f"{self.board.kind:#x} ({self.board.name})")
        actual = zlib.crc32(image[size:])
        if actual != code_crc:
            raise differ("CRC of the code", f"{actual:#010x}", f"{code_crc:#010x} (its header)")
        if actual != self.image_crc:
            raise differ("CRC of the code", f"{actual:#010x}", f"{self.image_crc:#010x} (manifest)")


def overlay_names() -> tuple[str, ...]:
    """Names of the overlays that ship with the package, sorted."""
    return tuple(
        sorted(path.parent.name for path in data_folder("overlays").glob("*/manifest.yaml"))
    )


def load_overlay(name: str | Path) -> Overlay:
    """The overlay with this name, folder or manifest file. OverlayError names the field that is
    unknown, missing or invalid, or the expected and found board or ABI."""
    manifest = _manifest_path(name)
    schema = data_folder("overlays") / "manifest.schema.json"
    facts = read_checked(manifest, schema, OverlayError)
    if facts["board"] not in board_names():
        hint = did_you_mean(facts["board"], board_names())
        raise OverlayError(f"{manifest}: board {facts['board']!r} is not known; {hint}")
    if facts["abi"] != native.ABI_NUMBER:
        raise OverlayError(
            f"{manifest}: ABI {facts['abi']} found, {native.ABI_NUMBER} expected; "
            "take an overlay built for this version"
        )
    overlay = _from_facts(facts, load_board(facts["board"]), manifest)
    _check_banks(overlay, manifest)
    return overlay


def _manifest_path(name: str | Path) -> Path:
    if isinstance(name, str) and name in overlay_names():
        return data_folder("overlays") / name / "manifest.yaml"
    path = Path(name)
    if path.is_dir():
        path = path / "manifest.yaml"
    if not path.exists():
        hint = did_you_mean(str(name), overlay_names())
        raise OverlayError(f"overlay {str(name)!r}: no such overlay or file; {hint}", usage=True)
    return path


def _from_facts(facts: dict[str, Any], board: Board, manifest: Path) -> Overlay:
    def run(name: str) -> range:
        if name not in facts["banks"]:
            return range(0)
        first, count = facts["banks"][name]["first"], facts["banks"][name]["count"]
        return range(first, first + count)

    registers = facts["registers"]
    container = facts.get("container")
    return Overlay(
        name=facts["name"],
        title=facts["title"],
        board=board,
        abi=facts["abi"],
        precision=facts["precision"],
        weights=tuple(facts["weights"]),
        kv=tuple(facts["kv"]),
        clock_hz=facts["clock_hz"],
        tiling=Tiling(**facts["tiling"]),
        onchip_bytes=facts["onchip_bytes"],
        merge=facts["merge"],
        prefill_copy=facts["prefill_copy"],
        **facts["limits"],
        control_bank=facts["banks"]["control"],
        weight_banks=run("weights"),
        spill_banks=run("spill"),
        block_base=(registers["control"], registers["link0"], registers["link1"]),
        links=LinkParameters(**facts["links"]),
        image_path=_inside(manifest, "firmware.image", facts["firmware"]["image"]),
        image_crc=facts["firmware"]["crc"],
        container=None if container is None else _inside(manifest, "container", container),
        path=manifest,
    )


def _inside(manifest: Path, field: str, name: str) -> Path:
    """A file that the manifest names. Files of its folder are also written by name."""
    if not name or Path(name).name != name or not name.isprintable():
        raise OverlayError(
            f"{manifest}: {field}: {name!r} found, the name of a file in its folder expected"
        )
    return manifest.parent / name


def _check_banks(overlay: Overlay, manifest: Path) -> None:
    count = len(overlay.board.banks)
    for name, banks in (
        ("control", range(overlay.control_bank, overlay.control_bank + 1)),
        ("weights", overlay.weight_banks),
        ("spill", overlay.spill_banks),
    ):
        if banks.stop > count:
            raise OverlayError(
                f"{manifest}: banks.{name}: bank {banks.stop - 1} found, "
                f"0..{count - 1} expected ({overlay.board.name})"
            )
    if overlay.clock_hz > overlay.board.clock_hz:
        raise OverlayError(
            f"{manifest}: clock_hz: {overlay.clock_hz} found, at most {overlay.board.clock_hz} "
            f"expected ({overlay.board.name})"
        )
