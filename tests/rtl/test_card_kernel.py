"""The whole card as the vendor build packs it, from its generated top on: registers by AXI4-Lite, a
ROM, 34 AXI4 memories that answer in any order, streams of 32 bytes. The host and its cluster are
those of emulated boards."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from tests.rtl.boards_build import ask, in_process
from tests.rtl.generations import Request, Seen, as_text, by_host
from tests.rtl.kernel_rig import libboards
from tests.rtl_rig import ROOT
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.rtl, pytest.mark.long]

# All weights are summed by the DMA unit when a model is opened. Then a line fails, once.
SUMS = """
import json, sys
from pathlib import Path
from tests.rtl import simulated_boards
from tests.drive import open_runner
from tests.rtl.generations import TIMEOUTS
from lora_host import abi
from lora_host.errors import LoraError
with open_runner(Path(sys.argv[1]), 1, timeouts=TIMEOUTS) as runner:
    cluster, found = runner.cluster, {"error": ""}
    cluster.emulated.fault(0, abi.FAULT_UNIT_FAILS, abi.UNIT_DMA, 1)
    try:
        cluster.checksum(0, 0, 0, 4096)
    except LoraError as error:
        found["error"] = str(error)
    found["sum"] = cluster.checksum(0, 0, 0, 4096)
    found["bytes"] = bytes(cluster.read(0, 0, 0, 4096)).hex()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("kernel") / "model")


@pytest.fixture(scope="module")
def archive() -> Path:
    return libboards(ROOT / "build" / "rtl" / "vendor" / "whole")


@pytest.mark.parametrize("scheme", ["", "w8a8", "w4a8"])
def test_tokens_are_those_of_emulated_boards(folder: Path, archive: Path, scheme: str) -> None:
    """A prompt, GENERATE, single steps behind it, and all of K and V."""
    wanted = by_host(folder, 1, 3, scheme)
    seen = Seen(**ask(as_text(Request(str(folder), 1, 3, scheme=scheme)), "card", archive)["seen"])
    assert (seen.tokens, seen.after, seen.kv) == (wanted.tokens, wanted.after, wanted.kv)
    assert seen.steps == [3] and not seen.error and len(set(wanted.tokens)) > 2


@pytest.mark.parametrize("scheme", ["", "w4a8"])
def test_two_kernels_joined_by_their_links(folder: Path, archive: Path, scheme: str) -> None:
    """Frames leave and come by the streams of 32 bytes: the link test, then gathers."""
    wanted = by_host(folder, 2, 3, scheme)
    request = as_text(Request(str(folder), 2, 3, scheme=scheme))
    found = ask(request, "card", archive, {"LORA_TEST_UNNUMBERED": "1"})
    seen = Seen(**found["seen"])
    assert (seen.tokens, seen.after, seen.kv) == (wanted.tokens, wanted.after, wanted.kv)
    assert seen.steps == [3, 3] and not seen.error and seen.redone == 0
    assert len(set(wanted.tokens)) > 2


def test_weights_are_summed_and_an_error_is_told(folder: Path, archive: Path) -> None:
    """From memory in bursts, and a line that memory reports as failed ends the operation."""
    done = in_process(["-c", SUMS, str(folder)], "card", archive)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "DMA" in found["error"]
    assert found["sum"] == crc32(bytes.fromhex(found["bytes"]))
