"""Boards, cluster files, URIs and what is chosen of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lora_host import abi, selection
from lora_host.boards import board_names, boards_of, load_board
from lora_host.card import board_of_shell, pci_board, possible_kinds
from lora_host.cluster_file import (
    BoardEntry,
    Cable,
    ClusterFile,
    check_cables,
    load_cluster,
    ring,
)
from lora_host.device_uri import check_uri
from lora_host.errors import LinkError, OverlayError, RequestError
from lora_host.overlay import load_overlay
from lora_host.selection import select

ROOT = Path(__file__).parents[2]
TOPOLOGIES = ROOT / "tests" / "topologies"
U280 = "emu:u280"


def test_board_facts_are_the_data_sheets() -> None:
    board = load_board("u280")
    assert [bank.name for bank in board.banks][::11] == ["HBM[0]", "HBM[11]", "HBM[22]", "DDR[1]"]
    hbm = [bank for bank in board.banks if bank.kind == "hbm"]
    assert sum(bank.capacity for bank in hbm) == 8 << 30
    assert sum(bank.bandwidth for bank in hbm) == 460_000_000_000
    assert board.bank_name(33) == "DDR[1]" and board.bank_name(34) == "bank 34"
    v80 = load_board("v80")
    assert sum(bank.capacity for bank in v80.banks) == 64 << 30 and v80.kind == 0x80
    u55c = load_board("u55c")
    assert {bank.kind for bank in u55c.banks} == {"hbm"} and len(u55c.banks) == 32
    assert sum(bank.capacity for bank in u55c.banks) == 16 << 30
    assert sum(bank.bandwidth for bank in u55c.banks) == 460_000_000_000


@pytest.mark.parametrize("name", board_names())
def test_a_boards_file_says_what_tells_it_from_others(name: str, tmp_path: Path) -> None:
    """An enumerator of the ABI, a PCI id, and a shell where the runtime has them."""
    board = load_board(name)
    assert board.name == name and board.kind == getattr(abi, f"BOARD_{name.upper()}")
    assert (board.runtime == "xrt") == (board.shell is not None)
    if board.shell is not None:
        assert board_of_shell(board.shell.card) == board_of_shell(board.shell.linker) == name
    card(tmp_path, "0000:3b:00.1", name)
    assert pci_board(tmp_path / "0000:3b:00.1") == board
    (tmp_path / "0000:3b:00.1" / "vendor").write_text("0x8086\n")
    assert pci_board(tmp_path / "0000:3b:00.1") is None


def card(bus: Path, bdf: str, name: str) -> None:
    """A card's user function on a bus of the test's own."""
    (bus / bdf).mkdir(parents=True)
    (bus / bdf / "vendor").write_text("0x10ee\n")
    (bus / bdf / "device").write_text(f"{load_board(name).pci_id:#06x}\n")


@pytest.mark.parametrize(
    ("uri", "cards", "kinds"),
    [
        ("emu:u55c", (), ("u55c",)),
        ("slash:0000:3b:00.0", (), ("v80",)),
        ("xrt:0", (), ("u280", "u55c")),
        ("xrt:0", ("u55c",), ("u55c",)),
        ("xrt:0", ("u55c", "v80"), ("u55c",)),
        ("xrt:1", ("u55c", "u280"), ("u280", "u55c")),
        ("xrt:0000:3b:00.1", ("u55c", "u280"), ("u55c",)),
        ("xrt:3c:00.1", ("u55c", "u280"), ("u280",)),
        ("tcp:lab2:7410/xrt:0", ("u55c",), ("u280", "u55c")),
    ],
)
def test_xrts_boards_are_told_apart_by_their_cards(
    uri: str, cards: tuple[str, ...], kinds: tuple[str, ...], tmp_path: Path
) -> None:
    for place, name in enumerate(cards):
        card(tmp_path, f"0000:{0x3B + place:x}:00.1", name)
    assert possible_kinds(uri, tmp_path) == kinds


def test_an_overlay_is_for_one_of_a_runtimes_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    for board in boards_of("xrt"):
        overlay = load_overlay(f"lora_f_{board.name}")
        assert select(None, ["xrt:4095"], None, overlay).boards[0].uri == "xrt:4095"
    with pytest.raises(OverlayError, match="a u280 or u55c found, overlay lora_f_v80 is for a v80"):
        select(None, ["xrt:0"], None, load_overlay("lora_f_v80"))
    monkeypatch.setattr(selection, "possible_kinds", lambda uri: ("u55c",))
    with pytest.raises(OverlayError, match="a u55c found, overlay lora_f_u280 is for a u280"):
        select(None, ["xrt:0"], None, load_overlay("lora_f_u280"))
    assert selection.default_overlay(["xrt:0"], None) == "lora_f_u55c"


def test_an_unknown_board_is_suggested() -> None:
    with pytest.raises(RequestError, match=r"board 'u28' is not known; did you mean 'u280'\?"):
        load_board("u28")


@pytest.mark.parametrize(("name", "boards"), [("single", 1), ("pair", 2), ("ring4", 4)])
def test_shipped_rings_are_the_default_cabling(name: str, boards: int) -> None:
    file = load_cluster(TOPOLOGIES / f"{name}.yaml")
    assert len(file.boards) == boards and file.cables == ring(boards)


def test_every_topology_can_be_read() -> None:
    files = sorted(TOPOLOGIES.glob("*.yaml"))
    assert len(files) >= 6
    for path in files:
        load_cluster(path)


@pytest.mark.parametrize("boards", [0, 65])
def test_rings_have_one_to_64_boards(boards: int) -> None:
    with pytest.raises(RequestError, match=f"{boards} boards requested, 1..64 expected"):
        ring(boards)


@pytest.mark.parametrize(
    ("uri", "hint"),
    [
        ("emu:u208", "did you mean 'emu:u280'"),
        ("em:u280", "did you mean 'emu:u280'"),
        ("emu:v8", "did you mean 'emu:v80'"),
        ("", "known: emu:u280, emu:u55c, emu:v80"),
        ("/dev/xdma0", "known: emu:u280, emu:u55c, emu:v80"),
    ],
)
def test_a_bad_uri_gets_a_hint(uri: str, hint: str) -> None:
    with pytest.raises(RequestError, match=hint):
        check_uri(uri)


def write(tmp_path: Path, boards: object, cables: object = ()) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"boards": boards, "cables": list(cables)}))  # type: ignore[call-overload]
    return path


@pytest.mark.parametrize(
    ("boards", "message"),
    [
        ([], "boards"),
        ([{"serial": 5}], "field 'uri' is missing"),
        ([{"uri": "emu:u28", "serial": 1}], "did you mean 'emu:u280'"),
        ([{"uri": U280, "serial": 1, "slot": 2}], "boards.0: unknown field 'slot'"),
        ([{"uri": U280, "serial": 0}], r"boards.0.serial: found 0, expected minimum 1"),
        ([{"uri": U280, "serial": 5}] * 2, "boards.1.serial: 5 is board 0's already"),
    ],
)
def test_a_wrong_cluster_file_is_named(tmp_path: Path, boards: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        load_cluster(write(tmp_path, boards))


@pytest.mark.parametrize(
    ("cables", "message"),
    [
        ([Cable(0, 1, 2, 0)], "board 2 found, 0..1 expected"),
        ([Cable(0, 2, 1, 0)], "port 2 found, 0 or 1 expected"),
        ([Cable(0, 1, 0, 0)], "both ends on one board"),
        ([Cable(0, 1, 1, 0), Cable(1, 0, 0, 0)], "board 1 port 0 already has the cable board 0"),
    ],
)
def test_a_wrong_cable_is_named(cables: list[Cable], message: str) -> None:
    with pytest.raises(LinkError, match=message):
        check_cables(cables, 2)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none\.yaml: cannot be read"):
        load_cluster(tmp_path / "none.yaml")
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="not UTF-8"):
        load_cluster(path)


def test_selection_says_why() -> None:
    overlay = load_overlay("lora_f_u280")
    chosen = select(2, (), None, overlay)
    assert chosen.cables == ring(2) and "emulated" in chosen.why and "\n" not in chosen.why
    assert select(None, [U280] * 3, None, overlay).cables == ring(3)
    file = load_cluster(TOPOLOGIES / "ring4.yaml")
    part = select(2, (), file, overlay)
    assert part.boards == file.boards[:2] and part.cables == (Cable(0, 1, 1, 0),)
    assert part.why.endswith("ring4.yaml (of its 4 boards 0, 1)")


def test_some_boards_of_a_file_keep_their_serials_and_the_cables_among_them() -> None:
    file = load_cluster(TOPOLOGIES / "ring8.yaml")
    part = file.only([6, 0, 7])
    assert [entry.serial for entry in part.boards] == [101, 107, 108]
    assert set(part.cables) == {Cable(1, 1, 2, 0), Cable(2, 1, 0, 0)}
    assert file.only(range(8)) is file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, [U280, U280], None), "3 boards requested, but 2 devices named"),
        ((2, ["xrt:0"], None), "2 boards requested, but 1 device named"),
        ((None, [U280, "sim:u280"], None), "emulated boards and simulated cards were named"),
        ((None, [U280], ClusterFile((), ())), "both given"),
        ((2, (), ClusterFile((BoardEntry(U280, 1),), ())), "1 board found, 2 requested"),
    ],
)
def test_options_that_contradict_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        select(*arguments, load_overlay("lora_f_u280"))  # type: ignore[arg-type]


def test_a_board_of_another_kind_is_refused() -> None:
    with pytest.raises(OverlayError, match=r"a v80 found, overlay lora_f_u280 is for a u280"):
        select(None, [U280, "emu:v80"], None, load_overlay("lora_f_u280"))


def test_the_example_is_a_cluster_file_and_the_page_shows_it() -> None:
    path = ROOT / "examples" / "cluster.yaml"
    file = load_cluster(path)
    assert file.boards == (
        BoardEntry("xrt:0000:3b:00.1", 17), BoardEntry("xrt:0000:5e:00.1", None),
    )  # fmt: skip
    assert file.cables == (Cable(0, 1, 1, 0),)
    shown = path.read_text().partition("\n")[2]
    assert f"```\n{shown}```\n" in (ROOT / "docs" / "lab.md").read_text()
