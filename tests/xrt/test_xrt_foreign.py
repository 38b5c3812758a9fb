"""Lab tools on boards with containers of others, through the real XRT."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lora_host.cluster_file import Cable, load_cluster
from lora_host.overlay import load_overlay
from lora_host.xrt_environment import XrtEnvironment
from tests.foreign import foreign_xclbin
from tests.xrt_rig import finish, said, start

pytestmark = pytest.mark.xrt

LORA = "from lora_sdk.cli.main import main; sys.argv[0] = 'lora'; main()"


def lora(place: XrtEnvironment, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    return finish(start(place, LORA, *words), 60)


@pytest.fixture(scope="module")
def pair() -> Iterator[XrtEnvironment]:
    with XrtEnvironment(2) as place:
        yield place


@pytest.fixture(scope="module")
def vadd(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("foreign") / "vadd.xclbin"
    return str(foreign_xclbin(path, banks=(0, 5, 17, 33)))


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("foreign") / "aurora.xclbin"
    return str(foreign_xclbin(path, banks=(0,), ports=(0, 1)))


def test_memory_of_every_bank_that_the_container_uses(pair: XrtEnvironment, vadd: str) -> None:
    words = ("--device", "xrt:0", "--device", "xrt:1", "--container", vadd)
    code, out, err = lora(pair, "validate", *words, "--memory", "--mib", "3")
    assert code == 0, out + err
    assert "memory: 8 banks, 24.00 MiB, read back by the host: right" in out
    assert "2 emulated boards: sound" in out
    code, out, _ = lora(pair, "validate", *words)
    assert code == 0 and "units: not tested: the container has no lora_ctrl" in out


def test_what_needs_lora_ctrl_is_refused(pair: XrtEnvironment, vadd: str) -> None:
    words = ("--device", "xrt:0", "--container", vadd)
    code, out, err = lora(pair, "links", *words, "--test")
    assert code == 1 and out == "" and "the container has no link core" in err
    code, _, err = lora(pair, "validate", *words, "--overlay", "lora_f_u280")
    assert code == 2 and "a board holds one of them" in err
    code, _, err = lora(pair, "validate", "--device", "slash:0000:21:00.0", "--container", vadd)
    assert code == 2 and "takes no xclbin" in err
    code, _, err = lora(pair, "validate", "--boards", "2", "--container", vadd)
    assert code == 2 and "emulated boards, which hold no container" in err


def test_links_of_foreign_cores(pair: XrtEnvironment, cores: str, tmp_path: Path) -> None:
    words = ("--device", "xrt:0", "--device", "xrt:1", "--container", cores)
    code, out, err = lora(pair, "links", *words, "--test")
    assert code == 0, out + err
    assert out.count("1 cable expected, 1 found by reset, no problem") == 2
    assert "board 0 port 1: up status 0x11ff (healthy) framing on width 32 B" in out
    assert "payload: not tested: the container has no lora_ctrl" in out
    own = ("--container", str(load_overlay("lora_f_u280").container), "--test")
    code, out, err = lora(pair, "links", *words[:4], *own)
    assert "with --container lora_ctrl is not opened" in out and code == 0, out + err
    code, out, err = lora(pair, "links", *words, "--discover")
    assert code == 0 and err == "", err
    file = tmp_path / "lab.yaml"
    file.write_text(out)
    assert load_cluster(file).cables == (Cable(0, 1, 1, 0),)
    assert [entry.serial for entry in load_cluster(file).boards] == [None, None]


def test_a_cable_in_the_wrong_port_is_found_without_payload(cores: str) -> None:
    with XrtEnvironment(2, cables=(Cable(0, 1, 1, 1),)) as place:
        words = ("--device", "xrt:0", "--device", "xrt:1", "--container", cores)
        code, out, _ = lora(place, "links", *words, "--test")
        found = yaml.safe_load(lora(place, "links", *words, "--discover")[1])
    assert code == 1 and "(the ports of a board are swapped)" in out
    assert found["cables"] == [{"board_a": 0, "port_a": 1, "board_b": 1, "port_b": 1}]


def test_inspect_needs_no_manifest(pair: XrtEnvironment, cores: str) -> None:
    code, out, _ = lora(pair, "inspect", cores, "--json")
    facts = json.loads(out)
    assert code == 0 and facts["emulation"]
    assert [unit["name"] for unit in facts["units"]] == [
        "vadd:vadd_1",
        "aurora_flow_0:aurora_0",
        "aurora_flow_1:aurora_1",
    ]


WRONG = """
from pathlib import Path
from lora_host.lab.bare import BareBoard, BareBoards
from lora_host.lab.memory import check_bare_memory
real = BareBoard.write
def spoilt(self, buffer, offset, data):
    if buffer == 2:
        data[100] ^= 1
    real(self, buffer, offset, data)
BareBoard.write = spoilt
with BareBoards(["xrt:0"], sys.argv[1]) as held:
    for result in check_bare_memory(held, 1 << 16):
        print(result.bank, result.fault or "right")
    try:
        held.boards[0].read(0, (1 << 16) - 8, 16)
    except PlacementError as error:
        print(error)
"""


def test_one_wrong_byte_and_a_range_beyond_a_buffer(pair: XrtEnvironment, vadd: str) -> None:
    lines = said(pair, WRONG, vadd).splitlines()
    assert lines[0] == "HBM[0] right" and lines[3] == "DDR[1] right"
    assert lines[2].startswith("HBM[17] 1 wrong bytes, the first at offset 0x64")
    assert "16 B at 0xfff8 are not inside it" in lines[4]
