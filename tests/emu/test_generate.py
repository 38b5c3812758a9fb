"""Boards that choose greedy tokens by themselves give those of the host's loop, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import LinkError, LoraError, ModelError, RequestError
from lora_host.records import GenerateResult
from lora_lab.timing.host_access import generate_accesses
from lora_sdk import Delta, Engine, Result, SamplingParams
from lora_sdk.step.runner import KvOp, Runner
from tests.adapter_folders import Folder, write_adapter
from tests.drive import open_runner
from tests.emu.test_host_greedy import FIRST_PAGE, PROMPT, greedy, prefill
from tests.quantized import SCHEMES, QuantizedModel
from tests.transports import Transport
from tests.variants import VARIANTS, variant, write_checkpoint

COUNT = 70  # more than one doorbell's, over two tiles
SLOTS = (40, 41, 42)
PAGES = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("generate")

    def write(name: str) -> Path:
        target = root / name
        return target if target.exists() else write_checkpoint(variant(name), target)

    return write


@pytest.fixture(scope="module")
def runner(folder: Callable[[str], Path], transport: Transport) -> Iterator[Runner]:
    with open_runner(folder("llama_narrow"), 4, transport=transport) as opened:
        yield opened


def pages() -> list[int]:
    """Those of sequence 0; prefill maps the first."""
    return [FIRST_PAGE, *range(FIRST_PAGE + 4, FIRST_PAGE + 3 + PAGES)]


def generate(
    runner: Runner, token: int, count: int = COUNT, at: int = len(PROMPT), **options: Any
) -> tuple[list[int], GenerateResult]:
    """Tokens that the listener received, and the counts. Pages go with the headers."""
    received: list[int] = []
    options.setdefault("on_token", received.append)
    options.setdefault("pages", pages())
    offset = runner.plan.boards[0].control.block_offset
    result = runner.cluster.generate(0, at, token, SLOTS, count, offset, runner.ring, **options)
    return received, result


def by_host(runner: Runner, count: int = COUNT) -> tuple[int, list[int]]:
    """The prompt's token and those that the host's loop chooses after it. The prompt is then
    committed again."""
    token = prefill(runner, 0)
    runner.step([], [KvOp.table(0, tile, page) for tile, page in enumerate(pages()) if tile])
    wanted, _ = greedy(runner, token, count)
    runner.step([], [KvOp.length(0, 0)])
    assert prefill(runner, 0) == token
    return token, wanted


def clear(runner: Runner) -> None:
    runner.step([], [KvOp.length(0, 0)])


def test_tokens_are_those_of_the_hosts_loop(runner: Runner) -> None:
    token, wanted = by_host(runner)
    before = runner.cluster.stats()
    received, result = generate(runner, token)
    after = runner.cluster.stats()
    assert received == wanted and len(set(wanted)) > 1
    assert result == GenerateResult(COUNT, COUNT)
    assert after.step - before.step == COUNT and after.epoch == before.epoch
    clear(runner)


def test_the_host_reads_at_most_once_a_token(runner: Runner) -> None:
    """Registers and memory, all boards together; polls of the done bit are counted apart, and looks
    at a board that has nothing new yet."""
    token, _ = by_host(runner)
    before = runner.cluster.stats()
    generate(runner, token, 64)
    after = runner.cluster.stats()
    charged, size = generate_accesses(), runner.plan.size
    ring = after.memory_reads - before.memory_reads - charged.dma_after * size
    looks = after.looks - before.looks
    emulated = runner.cluster.emulated is not None
    assert after.doorbells - before.doorbells == size
    assert after.memory_writes - before.memory_writes == charged.dma_before * size
    assert 0 <= ring <= (0 if emulated else 64)
    assert looks == 64 if emulated else looks >= 1
    clear(runner)


def test_stop_tokens_end_it_on_the_boards(runner: Runner) -> None:
    token, wanted = by_host(runner)
    stop = next(t for t in wanted if wanted.index(t) > 2)
    count = wanted.index(stop) + 1
    received, result = generate(runner, token, stop_tokens=[stop, 1 << 20])
    assert received == wanted[:count] and result == GenerateResult(count, count)
    clear(runner)


def test_a_listener_ends_it_within_one_token(runner: Runner) -> None:
    token, wanted = by_host(runner)
    received: list[int] = []

    def listen(token: int) -> bool:
        received.append(token)
        return len(received) == 5

    _, result = generate(runner, token, on_token=listen)
    assert received == wanted[:5] and result.emitted == 5
    if runner.cluster.emulated is not None:  # other boards do not wait for a slow host
        assert result.rows <= 6
    runner.step([], [KvOp.length(0, len(PROMPT) + 5)])
    rest, _ = generate(runner, received[-1], 7, len(PROMPT) + 5)
    assert rest == wanted[5:12]
    clear(runner)


def test_what_a_listener_raises_comes_out(runner: Runner) -> None:
    def fail(_token: int) -> None:
        raise LookupError("listener")

    token, _ = by_host(runner, 1)
    with pytest.raises(LookupError, match="listener"):
        generate(runner, token, on_token=fail)
    clear(runner)


def test_bad_arguments_are_refused(runner: Runner) -> None:
    offset = runner.plan.boards[0].control.block_offset
    call = runner.cluster.generate
    with pytest.raises(RequestError, match="slots 4, 5 and 4"):
        call(0, 1, 5, (4, 5, 4), 1, offset, runner.ring)
    with pytest.raises(RequestError, match="no board of rank 0"):
        call(0, 1, 5, (4, 5, 6), 1, offset, (4, 0))
    with pytest.raises(RequestError, match="65 stop tokens"):
        generate(runner, 5, stop_tokens=range(65))


# --- failures -------------------------------------------------------------------------------------


def go_on(runner: Runner, token: int, count: int) -> tuple[list[int], list[LoraError]]:
    """Generates `count` tokens over any number of failures, each followed by a plain step, as the
    engine does. Every token is believed once its rows have run."""
    tokens, errors = [token], []
    while len(tokens) <= count:
        results: list[GenerateResult] = []
        received: list[int] = []
        at = len(PROMPT) + len(tokens) - 1
        try:
            generate(
                runner, tokens[-1], count + 1 - len(tokens), at,
                on_token=received.append, ended=results.append,
            )  # fmt: skip
        except LoraError as error:
            errors.append(error)
            assert len(errors) < 50
        rows = results[0].rows
        assert results[0].emitted == len(received) and rows >= len(received) - 1
        tokens += received[:rows]
        if rows and errors:
            last = len(PROMPT) + len(tokens) - 2
            runner.step([], [KvOp.commit(0, last, 0, 1)], [SLOTS[(rows - 1) % 3]])
    return tokens[1:], errors


def flips(folder: Path, boards: int, cases: int) -> None:
    """Frames damaged at random: one is redone in C, several fail the run. In some cases a board has
    gone on to the next token when another fails."""
    draws, failures, spread = random.Random(boards), 0, 0
    with open_runner(folder, boards) as runner:
        token, wanted = by_host(runner, 12)
        emulated = runner.cluster.emulated
        assert emulated is not None
        for _ in range(cases):
            clear(runner)
            assert prefill(runner, 0) == token
            board, port = draws.randrange(boards), draws.randrange(2)
            after, count = draws.randrange(120 * boards), draws.choice((1, 2, 6, 20))
            emulated.fault(board, abi.FAULT_LINK_FLIP, port, after, count)
            before = runner.cluster.stats()
            tokens, errors = go_on(runner, token, 12)
            emulated.fault(board, abi.FAULT_NONE)
            assert tokens == wanted, (board, port, after, count)
            failures += len(errors)
            spread += runner.cluster.stats().redone_steps - before.redone_steps
            assert all(isinstance(error, LinkError) for error in errors)
        assert failures and spread


@pytest.mark.parametrize("boards", [2, 4])
def test_damaged_frames_change_no_token(folder: Callable[[str], Path], boards: int) -> None:
    flips(folder("llama_narrow"), boards, 40)


@pytest.mark.parametrize(
    "fault",
    [
        (abi.FAULT_COMPLETION_LOST,),
        (abi.FAULT_UNIT_STUCK, abi.UNIT_MPU),
        (abi.FAULT_UNIT_STUCK, abi.UNIT_ROUTER),
        (abi.FAULT_UNIT_STUCK, abi.UNIT_DMA),
    ],
)
@pytest.mark.parametrize("board", [0, 3])
def test_boards_are_one_step_apart_after_a_failure(
    folder: Callable[[str], Path], fault: tuple[int, ...], board: int
) -> None:
    with open_runner(folder("llama_narrow"), 4) as runner:
        token, wanted = by_host(runner, 12)
        emulated, received = runner.cluster.emulated, []
        assert emulated is not None

        def listen(token: int) -> None:
            received.append(token)
            if len(received) == 6:
                emulated.fault(board, *fault)

        results: list[GenerateResult] = []
        with pytest.raises(LoraError):
            generate(runner, token, 12, on_token=listen, ended=results.append)
        last = [runner.cluster.register(b, 0, abi.REG_LAST_STEP) for b in range(4)]
        assert max(last) - min(last) <= 1
        emulated.fault(board, abi.FAULT_NONE)
        rows = results[0].rows
        assert received == wanted[: len(received)] and rows >= len(received) - 1 and rows >= 5
        done = len(PROMPT) + rows
        runner.step([], [KvOp.commit(0, done - 1, 0, 1)], [SLOTS[(rows - 1) % 3]])
        rest, _ = generate(runner, wanted[rows - 1], 20 - rows, done)
        assert rest[: 12 - rows] == wanted[rows:]


def test_a_misfiled_vote_is_noticed(folder: Callable[[str], Path]) -> None:
    with open_runner(folder("llama_narrow"), 2) as runner:
        token = prefill(runner, 0)
        assert runner.cluster.emulated is not None
        runner.cluster.emulated.fault(1, abi.FAULT_MISFILE)
        with pytest.raises(LoraError):
            generate(runner, token, 3)


def test_a_value_that_is_not_finite_is_named_as_by_the_host(runner: Runner) -> None:
    """Board 0 has no column of the FFN in this narrow model; board 3 has."""
    token = prefill(runner, 0)
    plan = runner.plan.boards[3]
    matrix = plan.matrices["layer.1.down"]
    bank, offset = matrix.bank_first + matrix.first, matrix.weight_line * abi.LINE_BYTES
    kept = runner.cluster.read(plan.board, bank, offset, 2)
    runner.cluster.write(plan.board, bank, offset, np.array([0x7E00], np.uint16))
    try:
        with pytest.raises(ModelError) as named:
            greedy(runner, token)
        clear(runner)
        assert prefill_bytes(runner, plan.board, bank, offset, kept) == token
        runner.cluster.write(plan.board, bank, offset, np.array([0x7E00], np.uint16))
        results: list[GenerateResult] = []
        with pytest.raises(ModelError) as found:
            generate(runner, token, ended=results.append)
        assert str(found.value) == str(named.value)
        assert results == [GenerateResult(0, 1)]
    finally:
        runner.cluster.write(plan.board, bank, offset, kept)
    clear(runner)


def prefill_bytes(runner: Runner, board: int, bank: int, offset: int, kept: bytearray) -> int:
    """The prompt again, with the weight as it was."""
    runner.cluster.write(board, bank, offset, kept)
    return prefill(runner, 0)


# --- models ---------------------------------------------------------------------------------------

PROMPTS = [[(7 * i + 11 * k) % 250 + 3 for i in range(4 + 15 * k)] for k in range(3)]
SLOW = pytest.mark.slow


def check(runner: Runner, count: int = 40) -> None:
    token, wanted = by_host(runner, count)
    assert generate(runner, token, count)[0] == wanted


EMBEDDINGS = ("gpt2", "opt_post_norm", "bloom", "granite")  # positions, projections, norm, scale


@pytest.mark.parametrize("boards", [2, *(pytest.param(n, marks=SLOW) for n in (1, 4))])
@pytest.mark.parametrize(
    "name",
    [pytest.param(o.name, marks=[] if o.name in EMBEDDINGS else SLOW) for o in VARIANTS],
)
def test_every_models_tokens(folder: Callable[[str], Path], name: str, boards: int) -> None:
    with open_runner(folder(name), boards) as runner:
        check(runner, 12)


@pytest.mark.parametrize("boards", [2, *(pytest.param(n, marks=SLOW) for n in (1, 4, 8))])
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8", "w4a16"])
def test_quantized_models(folder: Callable[[str], Path], scheme: str, boards: int) -> None:
    path = folder("llama_gqa_bias")
    with open_runner(path, boards, model=QuantizedModel(path, SCHEMES[scheme])) as runner:
        check(runner)


def both(folder: Path, boards: int, adapters: dict[str, Path], **options: Any) -> None:
    """Texts and finish reasons by boards and by host, one request after another."""
    found = []
    for chooser in ("host", "boards"):
        with Engine(folder, boards=boards, greedy=chooser, **options) as engine:
            for name, path in adapters.items():
                engine.load_adapter(name, path)
            texts = []
            for prompt in PROMPTS:
                for adapter in (None, *adapters):
                    params = SamplingParams(max_tokens=40, ignore_eos=True, adapter=adapter)
                    result = engine.generate(prompt, params)
                    assert isinstance(result, Result)
                    texts.append((result.token_ids, result.outputs[0].finish_reason))
            found.append(texts)
            tokens = engine.cluster.stats().tokens
            assert tokens > 0 if chooser == "boards" else tokens == 0
    assert found[0] == found[1]


@pytest.mark.parametrize("boards", [2, *(pytest.param(n, marks=SLOW) for n in (1, 4, 8))])
def test_engines_give_the_same_tokens(folder: Callable[[str], Path], boards: int) -> None:
    both(folder("gpt2"), boards, {})


def test_with_adapters(folder: Callable[[str], Path], tmp_path: Path) -> None:
    which = variant("llama_narrow")
    adapters = {
        "a": write_adapter(which, Folder("a", rank=8), tmp_path / "a"),
        "b": write_adapter(which, Folder("b", rank=16, blocks=4), tmp_path / "b"),
    }
    both(folder("llama_narrow"), 2, adapters, max_adapters=2, max_adapter_rank=16)


def test_a_sequence_goes_on_after_boards_were_stopped(folder: Callable[[str], Path]) -> None:
    """Rows that ran behind the last wanted token are dropped: a cached prefix and a stop in the
    middle give the texts of the host's loop."""
    texts = []
    for chooser in ("host", "boards"):
        with Engine(folder("gpt2"), boards=2, greedy=chooser) as engine:
            found = []
            for prompt in (PROMPTS[0], PROMPTS[1]):
                received: list[int] = []

                def stop(delta: Delta, received: list[int] = received) -> bool:
                    received.append(delta.token_id or 0)
                    return len(received) == 37

                engine.generate(
                    prompt, SamplingParams(max_tokens=60, ignore_eos=True), on_delta=stop
                )
                longer = SamplingParams(max_tokens=20, ignore_eos=True)
                again = engine.generate([*prompt, *received], longer)
                assert isinstance(again, Result)
                found.append((tuple(received), again.token_ids, again.cached_tokens))
            texts.append(found)
    assert texts[0] == texts[1]
