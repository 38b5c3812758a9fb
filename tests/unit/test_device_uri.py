"""URIs of boards behind a daemon: their parts, their one spelling, their lock's name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lora_host.boards import boards_of
from lora_host.device_uri import (
    board_type,
    canonical,
    check_uri,
    is_emulated,
    is_model,
    split_remote,
)
from lora_host.errors import RequestError
from lora_host.lock import lock_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("tcp:lab2:7410/xrt:0000:3b:00.1", ("tcp", "")),
        ("tcp:lab2.example.org:7410/slash:0000:21:00.0", ("tcp", "v80")),
        ("tcp:[fd00::2]:7410/emu:u280", ("tcp", "u280")),
        ("tcp:10.0.0.7:7410/emu:v80/3", ("tcp", "v80")),
        ("unix:/run/Lora/boardd.sock/xrt:0", ("unix", "")),
        ("unix:/run/lora/boardd.sock/emu:u280/1", ("unix", "u280")),
    ],
)
def test_a_nested_uri_tells_its_board(uri: str, found: tuple[str, str]) -> None:
    assert check_uri(uri) == found
    assert not is_emulated(uri)
    assert is_model(uri) == ("emu:" in uri)


@pytest.mark.parametrize(
    "uri",
    [
        "tcp:lab2/xrt:0",
        "tcp:lab2:0/xrt:0",
        "tcp:lab2:70000/xrt:0",
        "tcp:fd00::2:7410/xrt:0",
        "tcp:lab2:7410",
        "tcp:lab2:7410/",
        "tcp:lab 2:7410/xrt:0",
        "tcp:lab2:7410/tcp:lab3:7410/xrt:0",
        "tcp:lab2:7410/xrt:0/1",
        "tcp:lab2:7410/emu:u280/x",
        "tcp:lab2:7410/emu:u281",
        "unix:/run/a.sock",
        "unix:/run/a:b.sock/xrt:0",
        "unix:/run/a\n.sock/xrt:0",
        f"unix:/{'a' * 107}/xrt:0",
        "xrt:0\n",
        "tcp:lab2:7410/xrt:0000:3b:00.1\n",
    ],
)
def test_an_invalid_one_is_refused(uri: str) -> None:
    with pytest.raises(RequestError, match="device"):
        check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("emu:u280", "emulated"),
        ("sim:u280", "simulated"),
        ("xrt:0", "real"),
        ("slash:0000:21:00.0", "real"),
        ("tcp:lab2:7410/emu:u280/1", "emulated"),
        ("unix:/run/lora/boardd.sock/xrt:0000:3b:00.1", "real"),
    ],
)
def test_what_stands_behind_a_uri(uri: str, found: str) -> None:
    assert board_type(uri) == found


def test_the_parts_of_a_nested_uri() -> None:
    remote = split_remote("tcp:[fd00::2]:7410/emu:u280/1")
    assert remote is not None and (remote.where, remote.board) == ("[fd00::2]:7410", "emu:u280/1")
    assert split_remote("xrt:0000:3b:00.1") is None


def test_one_spelling_of_a_board() -> None:
    assert canonical("tcp:Lab2.Example.org:7410/xrt:3B:00.1") == canonical(
        "tcp:lab2.example.org:7410/xrt:0000:3b:00.0"
    )
    assert canonical("tcp:lab2.example.org:7410/emu:u280/1").endswith("/emu:u280/1")
    assert canonical("unix:/run/Lora.d/x.sock/xrt:0") == "unix:/run/Lora.d/x.sock/xrt:0"
    assert canonical("tcp:lab2:7410/xrt:0") != canonical("tcp:lab3:7410/xrt:0")


def test_a_lock_is_a_file_of_the_lock_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path))
    uris = ("unix:/run/../x/xrt:0", "x:../../etc/y", "x:a\nb", "x:a/b", "x:a_b", f"x:{'a' * 300}")
    paths = [lock_path(uri) for uri in uris]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.parent == tmp_path
        assert path.name.isprintable() and ".." not in path.name and len(path.name) < 128
    assert lock_path("xrt:0000:3b:00.1").name == "lora-fpga-xrt-0000-3b-00.lock"


def test_several_boards_in_one_uri_are_told_apart() -> None:
    """`lora diff` takes commas, other commands do not."""
    with pytest.raises(RequestError, match="commas found; repeat --device for each board"):
        check_uri("emu:u280,sim:u280")


def test_the_xrt_transport_has_the_banks_of_the_boards_files() -> None:
    """C does not read YAML: its table must be the same."""
    source = ROOT / "csrc" / "transports" / "xrt" / "transport_xrt_container.c"
    row = r'\{LORA_BOARD_(\w+), "(\w+)", (\d+), (\d+), (\d+)ull << (\d+), (?:(\d+)ull << (\d+)|0)\}'
    found = {}
    for kind, name, hbm, ddr, size, shift, more, by in re.findall(row, source.read_text()):
        banks = [int(size) << int(shift)] * int(hbm) + [int(more or 0) << int(by or 0)] * int(ddr)
        found[name] = kind.lower(), banks
    wanted = {
        board.name: (board.name, [bank.capacity for bank in board.banks])
        for board in boards_of("xrt")
    }
    assert found == wanted
