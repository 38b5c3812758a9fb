"""Containers, clusters and manifests to mutate, including packed and checksummed contents."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

from lora_host import axlf
from lora_host.alveo_container import bare_bitstream, register_bases
from lora_host.cluster_file import load_cluster
from lora_host.overlay import load_overlay
from lora_host.vrtbin import DESIGN_NAME, MAP_NAME, read_vrtbin
from lora_host.xclbin import read_xclbin, write_xclbin
from lora_lab.fleet.description import read_fleet
from lora_lab.timing.model import token_time
from lora_lab.timing.target import make_target
from lora_sdk.cli.inspect import kind_of
from lora_sdk.model.shapes import shape_config
from tests.mutations import Subject, damaged, rewritten

ROOT = Path(__file__).resolve().parents[1]


def vrtbin(folder: Path) -> Subject:
    """The tar, gzip'd or not, its members' headers, the map and the design's facts."""
    overlay = load_overlay("lora_f_v80")
    assert overlay.container is not None
    found = read_vrtbin(overlay.container)
    with tarfile.open(overlay.container) as archive:
        member = archive.extractfile(MAP_NAME)
        assert member is not None
        text = member.read().decode()
    mark, line, image = found.designs[DESIGN_NAME].split(b"\n", 2)
    path = folder / "some.vrtbin"

    def mutate(random: Random) -> bytes:
        system_map, facts = text, line
        match random.randrange(5):
            case 0:
                system_map = rewritten(random, text)
            case 1:
                facts = rewritten(random, line.decode()).encode()
        design = b"\n".join((mark, facts, image))
        if random.random() < 0.2:
            design = damaged(random, design)
        data = _tar({MAP_NAME: system_map.encode(), DESIGN_NAME: design})
        match random.randrange(6):
            case 0:
                data = damaged(random, data)
            case 1 | 2:
                data = _header_field(random, data)
            case 3:
                data = _extended(random) + data
        if random.random() < 0.4:
            data = gzip.compress(data, 1, mtime=0)
            if random.random() < 0.8:
                data = damaged(random, data)
        return data

    def read() -> None:
        inspect, table = kind_of(path)
        table(inspect(path, overlay))

    return Subject(path, mutate, read)


def _tar(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _header_field(random: Random, tar: bytes) -> bytes:
    """A changed field of the first header, with a correct checksum."""
    header = bytearray(tar[:512])
    start, size = random.choice(
        ((0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (156, 1), (157, 100),
         (257, 8), (265, 32), (329, 8), (345, 155))
    )  # fmt: skip
    text = random.choice(
        (b"-1", b"9" * 12, b"7" * 12, b"\xff" * 12, b"\x80" + b"\xff" * 11, b"1_0", b"0x1", b" ",
         b"\0", b"x", b"L", b"S", b"g", b"1", b"5", b"../x", b"a" * 155, random.randbytes(12))
    )  # fmt: skip
    header[start : start + size] = text[:size].ljust(size, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + tar[512:]


def _extended(random: Random) -> bytes:
    """An extended header: numbers, sizes, sparse maps and names of the member behind it."""
    number = random.choice(
        ("-1", "0", "1", "x", "\u0661", "1_0", "9" * 30, "9" * 5000, "1,x", "0,-1")
    )
    key = random.choice(
        ("size", "mtime", "path", "linkpath", "uid", "hdrcharset", "GNU.sparse.map",
         "GNU.sparse.size", "GNU.sparse.offset", "GNU.sparse.numblocks", "GNU.sparse.major", "a")
    )  # fmt: skip
    record = f" {key}={number}\n"
    length = random.choice((str(len(record) + 2), "0", "3", "-5", "x", "9" * 5000))
    content = (length + record).encode()
    if random.random() < 0.3:
        content = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n" + content
    entry = tarfile.TarInfo("x")
    entry.size, entry.type = len(content), random.choice((b"x", b"g", b"X", b"L", b"K", b"S"))
    member = entry.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
    return _header_field(random, member) if random.random() < 0.3 else member


def xclbin(folder: Path) -> Subject:
    """The container, and each of its sections with the table of sections intact."""
    overlay = load_overlay("lora_f_u280")
    assert overlay.container is not None
    whole = overlay.container.read_bytes()
    found = read_xclbin(overlay.container)
    path = folder / "some.xclbin"
    text = (axlf.EMBEDDED_METADATA, axlf.BUILD_METADATA, axlf.USER_METADATA)

    def mutate(random: Random) -> bytes:
        if random.random() < 0.3:
            return damaged(random, whole)
        sections = dict(found.sections)
        kind = random.choice((axlf.EMBEDDED_METADATA, *sections))
        if kind == axlf.BITSTREAM and random.random() < 0.8:
            links = bare_bitstream({0: 0x1000, 1: 0x2000}).decode()
            sections[kind] = rewritten(random, links).encode()
        elif kind in text and random.random() < 0.8:
            sections[kind] = rewritten(random, sections[kind].decode()).encode()
        else:
            sections[kind] = damaged(random, sections[kind])
        return write_xclbin(found.uuid, found.mode, found.platform, list(sections.items()))

    def read() -> None:
        inspect, table = kind_of(path)
        table(inspect(path, overlay))
        register_bases(read_xclbin(path).sections.get(axlf.BITSTREAM, b""))

    return Subject(path, mutate, read)


def cluster(folder: Path) -> Subject:
    """A cluster file."""
    text = (ROOT / "tests" / "topologies" / "ring4.yaml").read_text()
    path = folder / "cluster.yaml"
    return Subject(path, lambda random: _yaml(random, text), lambda: load_cluster(path))


def fleet(folder: Path) -> Subject:
    """A fleet of GPUs and boards."""
    text = (ROOT / "examples" / "fleet.yaml").read_text()
    path = folder / "fleet.yaml"
    return Subject(path, lambda random: _yaml(random, text), lambda: read_fleet(path))


def design(folder: Path) -> Subject:
    """A design of one's own, timed for a token."""
    text = (
        "mine: { base: lora-f, title: mine, boards: [u280], array: [32, 64], lanes: 16,\n"
        "  clock_hz: 3.0e+8, weight_bits: 16, kv_bytes: 2 }\n"
    )
    path = folder / "mine.yaml"
    config = shape_config("gpt2-345m")
    return Subject(
        path,
        lambda random: _yaml(random, text),
        lambda: token_time(make_target(str(path), None, config, 2), "gpt2-345m", 64),
    )


def manifest(folder: Path) -> Subject:
    """The manifest of an overlay."""
    name = "lora_q_u280"
    shutil.copytree(load_overlay(name).path.parent, folder / name)
    path = folder / name / "manifest.yaml"
    text = path.read_text()

    def read() -> None:
        assert load_overlay(path).image

    return Subject(path, lambda random: _yaml(random, text), read)


def _yaml(random: Random, text: str) -> bytes:
    if random.random() < 0.1:
        return damaged(random, text.encode())
    return rewritten(random, text).encode()
