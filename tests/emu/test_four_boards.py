"""Four boards are four: each holds its own shard and nothing else, and every byte of it matters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import LinkError
from lora_host.overlay import load_overlay
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.model_plan import BoardPlan
from lora_sdk.step.runner import Runner
from tests.drive import Driver, open_runner
from tests.transports import Transport
from tests.variants import variant, write_checkpoint

TOKENS = [5, 17, 99, 3, 250, 41, 7, 8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_gqa_tied"), tmp_path_factory.mktemp("four") / "model")


def model_bytes(folder: Path) -> int:
    """FP16 bytes of every tensor of the checkpoint; a tied lm_head counts once."""
    checkpoint = Checkpoint.open(folder)
    names = [
        name for name in checkpoint.names if not (name == "lm_head" and checkpoint.config.tied)
    ]
    return sum(2 * int(np.prod(checkpoint.shape(name))) for name in names)


def test_weight_bytes_are_the_models_plus_listed_replicas(folder: Path) -> None:
    with open_runner(folder, 4) as runner:
        plan = runner.plan
        assert plan.weight_bytes == model_bytes(folder) + plan.replica_bytes
        assert all(replica.bytes > 0 and replica.why for b in plan.boards for replica in b.replicas)


def first_block(board: BoardPlan, name: str) -> tuple[int, int]:
    return board.matrices[name].address(0)


def test_no_arena_holds_another_boards_shard(folder: Path) -> None:
    """The first 4 KiB of each board's FFN blocks occur in its own banks only."""
    with open_runner(folder, 4) as runner:
        memory = {
            plan.board: b"".join(
                bytes(runner.cluster.read(plan.board, bank, 0, size))
                for bank, size in sorted(plan.arenas.items())
            )
            for plan in runner.plan.boards
        }
        for plan in runner.plan.boards:
            bank, offset = first_block(plan, "layer.0.up")
            sample = bytes(runner.cluster.read(plan.board, bank, offset, 4096))
            assert len(set(sample)) > 16
            holders = [board for board, data in memory.items() if sample in data]
            assert holders == [plan.board]


def logits(runner: Runner, number: int = 0) -> bytes:
    return Driver(runner).feed(number, TOKENS, (8,)).tobytes()


@pytest.mark.parametrize("rank", range(4))
def test_one_weight_byte_on_each_board_changes_logits(folder: Path, rank: int) -> None:
    with open_runner(folder, 4) as runner:
        before = logits(runner)
        plan = runner.plan.boards[rank]
        bank, offset = first_block(plan, "layer.1.down")
        offset += 1  # the high byte of an FP16: sign and exponent
        (byte,) = runner.cluster.read(plan.board, bank, offset, 1)
        runner.cluster.write(plan.board, bank, offset, bytes([byte ^ 0x80]))
        assert logits(runner) != before
        runner.cluster.write(plan.board, bank, offset, bytes([byte]))
        assert logits(runner) == before


def test_a_link_that_goes_down_fails_the_step_naming_both_ends(
    folder: Path, transport: Transport
) -> None:
    with open_runner(folder, 4, transport=transport) as runner:
        logits(runner)
        transport.fault(runner.cluster, 1, abi.FAULT_LINK_DOWN, 1)
        began = time.monotonic()
        with pytest.raises(LinkError) as caught:
            logits(runner)
        assert time.monotonic() - began < 30
        message = str(caught.value)
        assert "board 1" in message and "board 2" in message
        assert "port 1" in message and "port 0" in message


@pytest.mark.parametrize("boards", [2, 4, 8])
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_bytes_on_each_link_equal_the_plans(folder: Path, boards: int, rows: int) -> None:
    with open_runner(folder, boards) as runner:
        emulated = runner.cluster.emulated
        assert emulated is not None
        ends = list(runner.plan.link_bytes(rows, rows))
        assert ends
        before = {end: emulated.link_bytes(*end) for end in ends}
        Driver(runner).step({0: [t % 300 for t in range(rows)]})
        for end, planned in runner.plan.link_bytes(rows, rows).items():
            frames, payload = emulated.link_bytes(*end)
            assert frames - before[end][0] == planned.frames
            assert payload - before[end][1] == planned.payload
            assert planned.payload > 0


def test_a_verification_of_many_rows_is_one_step_in_the_trace(folder: Path) -> None:
    with open_runner(folder, 4, trace=True) as runner:
        emulated = runner.cluster.emulated
        assert emulated is not None
        driver = Driver(runner)
        driver.feed(0, TOKENS, (8,))
        for board in range(4):
            emulated.trace(board)
        driver.step({0: [11, 12, 13, 14, 15]})
        for board in range(4):
            records = emulated.trace(board)
            assert len(set(records["step"])) == 1
            products = records[records["opcode"] == abi.CMD_MATRIX]
            assert set(products["rows"]) == {5}


def test_other_tilings_change_no_bit(folder: Path) -> None:
    """Tiles, merge ratio and buffer sizes of an overlay are performance only."""
    plain = load_overlay("lora_f_u280")
    others: list[Callable[[], object]] = [
        lambda: replace(plain, merge=4),
        lambda: replace(plain, max_step_rows=24),
        lambda: replace(plain, onchip_bytes=plain.onchip_bytes // 2),
        lambda: replace(plain, weight_banks=tuple(plain.weight_banks)[3:20]),
    ]
    tokens = [(7 * t) % 300 for t in range(50)]
    with open_runner(folder, 2) as runner:
        want = Driver(runner).feed(0, tokens, (20,)).tobytes()
    for make in others:
        with open_runner(folder, 2, overlay=make()) as runner:  # type: ignore[arg-type]
            assert Driver(runner).feed(0, tokens, (20,)).tobytes() == want
