"""Cards of `sim:` boards in the place of emulated boards: control and all units are simulated
hardware behind one memory port (overlays/rtl/card), memory and cables are the emulated board's.
What the host sees is what it sees of emulated boards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from tests.rtl.boards_build import ask, in_process
from tests.rtl.card_build import AS_THEY_ARE
from tests.rtl.generations import Fault, Request, Seen, as_text, by_host
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.usefixtures("cards")]
LONG = pytest.mark.long
CARDS = {"LORA_TEST_CARDS": str(AS_THEY_ARE)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("cards") / "model")


@cache
def expected(folder: Path, boards: int, count: int, scheme: str = "") -> Seen:
    return by_host(folder, boards, count, scheme)


@cache
def emulated(text: str) -> dict[str, Any]:
    """What emulated boards answer to a request, their frames too."""
    return ask(json.loads(text), "card")


def differences(request: Request, found: dict[str, Any]) -> list[Any]:
    """Bytes of arenas, frames of cables and sums of memory that are not as on emulated boards."""
    wanted = emulated(json.dumps(as_text(request)))
    pairs = [*zip(found["seen"]["arenas"], wanted["seen"]["arenas"], strict=True)]
    pairs += zip(found["frames"], wanted["frames"], strict=True)
    pairs.append((found["seen"]["mailed"], wanted["seen"]["mailed"]))
    assert pairs and found["seen"]["cycles"] and not wanted["seen"]["cycles"]
    return [pair for pair in pairs if pair[0] != pair[1]]


def compare(request: Request, cards: Mapping[str, str] = CARDS) -> None:
    """GENERATE, single steps behind it, all of K and V, what the core asks for by mailboxes; then
    all bytes and frames."""
    wanted = expected(Path(request.folder), request.boards, request.count, request.scheme)
    found = ask(as_text(request), "card", variables=cards)
    seen = Seen(**found["seen"])
    assert (seen.tokens, seen.after, seen.kv) == (wanted.tokens, wanted.after, wanted.kv)
    assert seen.steps == [request.count] * request.boards and not seen.error and seen.redone == 0
    assert len(set(wanted.tokens)) > 2
    assert not differences(request, found)


def generated(request: Request, cards: Mapping[str, str] = CARDS) -> Seen:
    return Seen(**ask(as_text(request), "card", variables=cards)["seen"])


@pytest.mark.parametrize(("boards", "count"), [(1, 4), (2, 4), pytest.param(4, 8, marks=LONG)])
def test_tokens_bytes_and_frames_are_those_of_emulated_boards(
    folder: Path, boards: int, count: int
) -> None:
    compare(Request(str(folder), boards, count, mailed=True))


@pytest.mark.parametrize("boards", [1, pytest.param(4, marks=LONG)])
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_the_same_of_quantized_models(folder: Path, scheme: str, boards: int) -> None:
    compare(Request(str(folder), boards, 4, scheme=scheme))


FAILS = Fault(1, 6, abi.FAULT_UNIT_FAILS, (abi.UNIT_MPU, 2))  # a read of memory, here
FLIPS = Fault(1, 6, abi.FAULT_LINK_FLIP, (0, 0, 20))


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (FAILS, [abi.ERR_LINK_POISON, abi.ERR_UNIT]),
        pytest.param(FLIPS, [abi.ERR_LINK_CRC, abi.ERR_LINK_POISON], marks=LONG),
    ],
)
def test_a_failure_ends_all_units(folder: Path, fault: Fault, codes: list[int]) -> None:
    """One board fails, poison ends the other; both go on with the right token."""
    seen, wanted = generated(Request(str(folder), 2, 12, fault=fault)), expected(folder, 2, 12)
    assert seen.error and 6 <= len(seen.tokens) < 12 and seen.codes == codes
    assert seen.tokens == wanted.tokens[: len(seen.tokens)]
    assert max(seen.steps) - min(seen.steps) <= 1
    assert seen.after == (wanted.tokens + wanted.after)[seen.rows :][:4]


# What emulated boards do with lists of all kinds, weights that are damaged, values not finite.
CASES = (
    "test_identity.py::test_prefill_and_decode[emu-llama_narrow-2]",
    "test_identity.py::test_siblings_and_commit_of_one_path[emu-2]",
    "test_quantized_identity.py::test_siblings_and_commit_of_one_path[native-w8a8]",
    "test_quantized_identity.py::test_siblings_and_commit_of_one_path[native-kv_heads]",
    "test_quantized_identity.py::test_adapters_read_the_fp16_activation[w8a8-auto]",
    "test_runner.py::test_a_vector_takes_the_place_of_its_embedding[llama_gqa_bias-1]",
    "test_runner.py::test_damaged_weights_are_found_by_the_board",
    "test_runner.py::test_values_that_overflow_name_layer_operation_and_row",
)


@LONG
@pytest.mark.parametrize("case", CASES)
def test_cases_of_emulated_boards_pass(case: str) -> None:
    done = in_process(
        [
            *("-m", "pytest", "-q", "-n", "0", "-p", "tests.rtl.simulated_cards"),
            *("-p", "no:cacheprovider", f"tests/emu/{case}"),
        ],
        "card",
        variables=CARDS,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
