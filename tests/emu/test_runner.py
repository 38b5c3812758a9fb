"""The Runner on emulated boards: what comes back of a step, where boards stand in the cabling, and
what it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.boards import load_board
from lora_host.cluster import Cluster
from lora_host.cluster_file import BoardEntry, Cable, ClusterFile
from lora_host.errors import CommandError, ModelError, RequestError, TransportError
from lora_host.overlay import Overlay, load_overlay
from lora_sdk.compile.isa import Gather, encode
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.stored import Stored
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.topology import route
from lora_sdk.step.runner import KvOp, Row, Runner, StepResult
from tests.oracle.forward import Oracle, load_weights
from tests.variants import variant, write_checkpoint

TOKENS = [7, 200, 31, 5, 199, 64, 12]
NAMES = ("llama_gqa_bias", "opt_post_norm", "opt_no_final_norm", "llama_narrow")
OVERLAY = load_overlay("lora_f_u280")


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant(request.param), tmp_path_factory.mktemp("m") / request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_gqa_bias"), tmp_path_factory.mktemp("m") / "llama")


@contextmanager
def opened(
    folder: Path,
    boards: int,
    *,
    file: ClusterFile | None = None,
    overlay: Overlay = OVERLAY,
    weights: Any = None,
    taps: tuple[int, ...] = (),
) -> Iterator[Runner]:
    config = load_config(folder)
    weights = weights or Checkpoint.open(folder, config)
    with Cluster.open(boards, cluster_file=file, overlay=overlay) as cluster:
        way = route(cluster.cables, boards)
        board = load_board("u280")
        plan = make_plan(config, overlay, board, boards, sequences=2, route=way, hidden_taps=taps)
        yield Runner(cluster, config, weights, plan)


def chain(tokens: list[int] = TOKENS, **wants: bool) -> list[Row]:
    return [Row(0, i, token, i, i - 1, **wants) for i, token in enumerate(tokens)]


def fresh(runner: Runner) -> list[KvOp]:
    return [KvOp.length(0, 0), KvOp.table(0, 0, runner.plan.scratch_pages)]


def run(runner: Runner, rows: list[Row]) -> StepResult:
    return runner.step(rows, fresh(runner))


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
def test_argmax_and_logits_agree_and_only_what_is_wanted_comes(folder: Path, boards: int) -> None:
    rows = chain()
    rows[1] = replace(rows[1], want_argmax=True)
    rows[4] = replace(rows[4], want_logits=True, want_argmax=True)
    rows[6] = replace(rows[6], want_logits=True)
    with opened(folder, boards) as runner:
        result = run(runner, rows)
        assert result.rows == (1, 4, 6) and result.hidden is None
        assert result.logits is not None and result.argmax is not None
        checkpoint = Checkpoint.open(folder)
        want = Oracle(checkpoint.config, load_weights(checkpoint)).logits(TOKENS)[[1, 4, 6]]
        assert result.logits.tobytes() == want.tobytes()
        values, ids = result.argmax
        assert ids.tolist() == want.argmax(axis=1).tolist()
        assert values.tobytes() == want.max(axis=1).tobytes()
        silent = run(runner, chain())
        assert silent.logits is None and silent.argmax is None and silent.rows == ()
        only = run(runner, chain(TOKENS[:1], want_argmax=True))
        assert only.logits is None and only.argmax is not None


def test_of_equal_logits_the_lowest_token_wins_over_boards(llama: Path) -> None:
    class Flat(Checkpoint):
        """Every column of lm_head the same: all logits are equal."""

        def stored(self, name: str) -> Stored:
            found = super().stored(name)
            flat = np.full(found.array.shape, 0.125, np.float16)
            return replace(found, array=flat, kind="F16") if name == "lm_head" else found

    weights = Flat.open(llama)
    with opened(llama, 4, weights=weights) as runner:
        result = run(runner, chain(want_argmax=True, want_logits=True))
        assert result.logits is not None and result.argmax is not None
        assert len(np.unique(result.logits[0])) == 1
        assert result.argmax[1].tolist() == [0] * len(TOKENS)


def test_hidden_taps_are_equal_over_boards(folder: Path) -> None:
    found = []
    layers = load_config(folder).layers
    for boards in (1, 2, 4, 8):
        with opened(folder, boards, taps=(layers, 0, 1)) as runner:
            rows = chain()
            rows[2] = replace(rows[2], want_hidden=True)
            rows[5] = replace(rows[5], want_hidden=True)
            result = run(runner, rows)
            assert result.hidden is not None and result.hidden_rows == (2, 5)
            assert result.hidden.shape == (3, 2, load_config(folder).hidden)
            found.append(result.hidden.tobytes())
            check_first_tap(folder, result.hidden)
    assert len(set(found)) == 1


def check_first_tap(folder: Path, hidden: np.ndarray[Any, Any]) -> None:
    """The input of layer 0 is the embedding; the others are no copies of it."""
    checkpoint = Checkpoint.open(folder)
    tokens = np.array(TOKENS)
    oracle = Oracle(checkpoint.config, load_weights(checkpoint))
    embedded = oracle._embed(tokens)[[2, 5]].astype(np.float16)
    assert hidden[1].tobytes() == embedded.tobytes()
    assert len({part.tobytes() for part in hidden}) == 3


@pytest.mark.parametrize("boards", [1, 4])
def test_a_vector_takes_the_place_of_its_embedding(folder: Path, boards: int) -> None:
    checkpoint = Checkpoint.open(folder)
    table = checkpoint.table("embed.token")
    rows = chain(want_logits=True)
    vectors = [replace(row, token=0, vector=table[row.token]) for row in rows]
    mixed = [vectors[i] if i % 2 else row for i, row in enumerate(rows)]
    with opened(folder, boards) as runner:
        want = run(runner, rows).logits
        assert want is not None
        for other in (vectors, mixed):
            got = run(runner, other).logits
            assert got is not None and got.tobytes() == want.tobytes()
        with pytest.raises(RequestError, match=r"row 0: its vector is float16 \[3\], expected"):
            run(runner, [replace(rows[0], vector=np.zeros(3, np.float16))])
        with pytest.raises(RequestError, match="row 0: its vector is float32"):
            run(runner, [replace(rows[0], vector=table[0].astype(np.float32))])


SHUFFLED = ClusterFile(
    tuple(BoardEntry("emu:u280", 40 + i) for i in range(4)),
    (Cable(2, 0, 0, 0), Cable(0, 1, 3, 1), Cable(3, 0, 1, 1), Cable(1, 0, 2, 1)),
)
PATH = ClusterFile(SHUFFLED.boards, SHUFFLED.cables[:3])


@pytest.mark.parametrize("file", [SHUFFLED, PATH], ids=["ring", "path"])
def test_ranks_follow_the_cabling_and_not_the_boards_numbers(folder: Path, file: Any) -> None:
    with opened(folder, 1) as single:
        want = run(single, chain(want_logits=True)).logits
        assert want is not None
    with opened(folder, 4, file=file) as runner:
        assert runner.plan.route.order != (0, 1, 2, 3)
        assert runner.plan.route.ring == (file is SHUFFLED)
        emulated = runner.cluster.emulated
        assert emulated is not None
        planned = runner.plan.link_bytes(7, 3)
        before = {end: emulated.link_bytes(*end) for end in planned}
        rows = chain()
        rows[1:6:2] = [replace(row, want_logits=True) for row in rows[1:6:2]]
        got = run(runner, rows).logits
        assert got is not None and got.tobytes() == want[1:6:2].tobytes()
        for end, sent in planned.items():
            now = tuple(a - b for a, b in zip(emulated.link_bytes(*end), before[end], strict=True))
            assert now == (sent.frames, sent.payload), end


@pytest.mark.parametrize("boards", [2, 8])
@pytest.mark.parametrize(("rows", "selected"), [(1, 0), (17, 5), (64, 33)])
def test_link_bytes_with_fewer_selected_rows(
    folder: Path, boards: int, rows: int, selected: int
) -> None:
    with opened(folder, boards) as runner:
        emulated = runner.cluster.emulated
        assert emulated is not None
        planned = runner.plan.link_bytes(rows, selected)
        before = {end: emulated.link_bytes(*end) for end in planned}
        tokens = [(5 * i) % 250 for i in range(rows)]
        chained = chain(tokens)
        chained[:selected] = [replace(row, want_argmax=True) for row in chained[:selected]]
        pages = [KvOp.table(0, 1, runner.plan.scratch_pages + 1)]
        runner.step(chained, fresh(runner) + pages)
        for end, sent in planned.items():
            now = tuple(a - b for a, b in zip(emulated.link_bytes(*end), before[end], strict=True))
            assert now == (sent.frames, sent.payload), end


def test_damaged_weights_are_found_by_the_board(llama: Path) -> None:
    with opened(llama, 4) as runner:
        runner.check_weights()
        plan = runner.plan.boards[2]
        for item in (plan.matrices["layer.1.down"].address(1), (33, 64)):
            (byte,) = runner.cluster.read(plan.board, *item, 1)
            runner.cluster.write(plan.board, *item, bytes([byte ^ 1]))
            name = runner.plan.board.bank_name(item[0])
            with pytest.raises(TransportError) as caught:
                runner.check_weights()
            assert f"board {plan.board} bank {name}: checksum" in str(caught.value)
            runner.cluster.write(plan.board, *item, bytes([byte]))
        runner.check_weights()


def test_loading_reports_every_byte(llama: Path) -> None:
    seen: list[tuple[int, int]] = []
    config = load_config(llama)
    with Cluster.open(2, overlay=OVERLAY) as cluster:
        way = route(cluster.cables, 2)
        plan = make_plan(config, OVERLAY, load_board("u280"), 2, route=way)
        Runner(cluster, config, Checkpoint.open(llama), plan, lambda *at: seen.append(at))
    total = sum(board.placed_bytes for board in plan.boards)
    assert seen[-1] == (total, total) and [at for at, _ in seen] == sorted({at for at, _ in seen})


def loud(folder: Path, wanted: str, uneven: bool = False) -> Checkpoint:
    """A model of which one matmul overflows FP16; `uneven`: in each output for other rows."""

    class Loud(Checkpoint):
        def stored(self, name: str) -> Stored:
            found = super().stored(name)
            values = np.full(found.array.shape, 60000, np.float16)
            if uneven:
                values = (values * np.random.default_rng(9).normal(0, 0.028, values.shape)).astype(
                    np.float16
                )
            return replace(found, array=values, kind="F16") if name == wanted else found

    return Loud.open(folder)


def test_values_that_overflow_name_layer_operation_and_row(llama: Path) -> None:
    weights = loud(llama, "layer.0.o")
    with opened(llama, 4, weights=weights) as runner, pytest.raises(ModelError) as caught:
        run(runner, chain())
    message = str(caught.value)
    assert "layer 0 matrix o wrote" in message
    assert re.search(r"first in row (\d) \(sequence 0, position \1\) on board \d;", message)
    assert "\n" not in message


def test_the_row_that_overflows_is_named_alike_on_any_boards(llama: Path) -> None:
    weights, found = loud(llama, "layer.0.k", uneven=True), []
    for boards in (1, 2, 4):
        with opened(llama, boards, weights=weights) as runner, pytest.raises(ModelError) as caught:
            run(runner, chain())
        found.append(str(caught.value).partition(" on board")[0])
    print(found)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("boards", [1, 4])
def test_the_last_layer_computes_the_rows_whose_logits_are_wanted_alone(
    llama: Path, boards: int
) -> None:
    rows, last = chain(), load_config(llama).layers - 1
    with opened(llama, boards, weights=loud(llama, f"layer.{last}.o")) as runner:
        run(runner, rows)
        rows[5] = replace(rows[5], want_argmax=True)
        with pytest.raises(ModelError) as caught:
            run(runner, rows)
    assert f"layer {last} matrix o wrote" in str(caught.value)
    assert "first in row 5 (sequence 0, position 5)" in str(caught.value)


def test_a_plan_for_other_boards_is_refused(llama: Path) -> None:
    config = load_config(llama)
    plan = make_plan(config, OVERLAY, load_board("u280"), 4)
    with (
        Cluster.open(2, overlay=OVERLAY) as cluster,
        pytest.raises(RequestError, match="plan is for 4 boards, the cluster has 2"),
    ):
        Runner(cluster, config, Checkpoint.open(llama), plan)


def test_a_route_over_boards_that_are_not_open_is_refused(llama: Path) -> None:
    config = load_config(llama)
    wide = (Cable(0, 1, 3, 0), Cable(3, 1, 1, 0), Cable(1, 1, 2, 0))
    plan = make_plan(config, OVERLAY, load_board("u280"), 2, route=route(wide, 2))
    with (
        Cluster.open(2, overlay=OVERLAY) as cluster,
        pytest.raises(RequestError, match="route uses board 3, the cluster has boards 0 to 1"),
    ):
        Runner(cluster, config, Checkpoint.open(llama), plan)


def test_steps_that_are_too_large_are_refused(llama: Path) -> None:
    with opened(llama, 1) as runner:
        with pytest.raises(RequestError, match="a step with 65 rows; expected at most 64"):
            runner.step(chain([1] * 65))
        with pytest.raises(RequestError, match="513 KV operations"):
            runner.step([], [KvOp.length(0, 0)] * 513)
        with pytest.raises(RequestError, match="no hidden taps"):
            run(runner, chain(want_hidden=True))
        with pytest.raises(CommandError, match="row"):
            run(runner, [Row(0, 5, 7, 0)])
        assert run(runner, chain(want_logits=True)).logits is not None


def test_a_tampered_list_is_refused_at_registration(llama: Path) -> None:
    """The firmware recomputes the seal, and it looks at every command behind it."""
    with opened(llama, 2) as runner:
        board, commands = runner.plan.boards[0], runner.commands[0]
        data = bytearray(encode(commands, runner.plan, 0, 1))
        data[-60] ^= 1
        offset = board.control.list_offset
        runner.cluster.write(0, runner.plan.overlay.control_bank, offset, data)
        with pytest.raises(CommandError):
            runner.cluster.register_list(0, 1, offset)
        place = next(i for i, c in enumerate(commands) if isinstance(c, Gather))
        broken = list(commands)
        broken[place] = replace(broken[place], offset=runner.plan.overlay.onchip_bytes)
        data = bytearray(encode(broken, runner.plan, 0, 1))
        runner.cluster.write(0, runner.plan.overlay.control_bank, offset, data)
        with pytest.raises(CommandError) as caught:
            runner.cluster.register_list(0, 1, offset)
        assert caught.value.index == place and caught.value.opcode == abi.CMD_GATHER
