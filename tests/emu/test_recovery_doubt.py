"""What a recovery finds raises a doubt about texts from before it, also where an attempt at it has
failed in between. Real damage and real faults of emulated boards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from lora_host import abi
from lora_host.errors import LoraError
from lora_sdk import Engine, SamplingParams
from tests.recovery_rig import Disturbed, Folders, inject, opened, write_folders
from tests.scrub_rig import flip, flip_adapter, flip_at, sum_nothing

PROMPTS = [[7, 8, 9], [20, 21]]
PARAMS = SamplingParams(max_tokens=8, ignore_eos=True, adapter="b")
WRITES = 20  # of the weights of a board, that pass before one fails


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("doubt"))


@pytest.fixture(scope="module")
def want(folders: Folders) -> list[Any]:
    with opened(folders, 2) as engine:
        return tokens(engine)


@pytest.fixture
def engine(folders: Folders) -> Iterator[Engine]:
    """One where nothing but recoveries finds damage."""
    with opened(folders, 2) as one:
        sum_nothing(one)
        yield one


def tokens(engine: Engine) -> list[Any]:
    return [result.token_ids for result in engine.generate(PROMPTS, PARAMS)]


def end_in_doubt(engine: Engine, words: str = "") -> None:
    """The requests have tokens from before what was found, and fail."""
    with pytest.raises(LoraError, match=f"{words}.* loaded again; the request has tokens"):
        tokens(engine)


def lose_all(engine: Engine, board: int) -> None:
    """Weights and adapters of a board: each sum is another one."""
    held = [one for found in engine._adapters.ranges().values() for one in found]
    for one in [*engine._loaded.runner.weights.parts, *held]:
        if one.board == board and one.bytes:
            flip_at(engine, board, one.bank, one.offset)


def flip_board_1(engine: Engine) -> None:
    part = next(one for one in engine._loaded.runner.weights.parts if one.board == 1 and one.bytes)
    flip_at(engine, 1, part.bank, part.offset)


def refuse(engine: Engine, board: int) -> None:
    """Damage the header of the adapter, so that the board refuses its rows."""
    adapters = engine._adapters
    plan = next(one for one in engine.plan.boards if one.board == board)
    slot = adapters.info("b").slot
    assert slot is not None
    flip_at(engine, board, *adapters._header_at(plan, slot))


class Events:
    """Calls that come once before a method's next call, of one engine."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine, self._patch = engine, monkeypatch

    def before_restore(self, event: Callable[[], object]) -> None:
        """Boards were reset; their weights are about to be summed."""
        self._once(self._engine._loaded.runner, "restore", event)

    def before_loading(self, event: Callable[[], object]) -> None:
        """Weights that differ are about to be loaded again."""
        self._once(self._engine.cluster, "place", event)

    def before_comparing(self, event: Callable[[], object]) -> None:
        """Weights are right again; the adapters are about to be compared."""
        self._once(self._engine._recovery, "damaged_adapters", event)

    def before_rows(self, event: Callable[[], object]) -> None:
        """Boards are right again; what they have lost is about to be noted."""
        self._once(self._engine._cache, "lose", event)

    def before_record(self, event: Callable[[], object]) -> None:
        """A recovery is done; the step is about to run again."""
        self._once(self._engine._recovery, "note", event)

    def _once(self, owner: object, name: str, event: Callable[[], object]) -> None:
        method = getattr(owner, name)

        def disturbed(*arguments: object) -> object:
            self._patch.setattr(owner, name, method)
            event()
            return method(*arguments)

        self._patch.setattr(owner, name, disturbed)


@pytest.fixture
def events(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Events:
    return Events(engine, monkeypatch)


def test_a_board_that_lost_all_before_another_failure_has_changed_nothing(
    engine: Engine, events: Events, want: list[Any]
) -> None:
    """The attempt that loads it ends before it compares adapters; the next one finds them gone,
    which says nothing of the texts from before."""
    events.before_restore(lambda: lose_all(engine, 1))
    events.before_comparing(lambda: inject(engine, 0, abi.FAULT_DONE_LOST))
    with Disturbed(engine, {0: lambda: inject(engine, 1, abi.FAULT_DONE_LOST)}):
        assert tokens(engine) == want
    (record,) = engine.recoveries
    assert record.cause.count("hangs") == 2 and "has changed" not in record.cause
    assert record.weight_bytes == engine.plan.boards[1].placed_bytes
    assert not engine.weight_notices.latest


def test_a_board_that_lost_all_and_is_loaded_in_part_has_changed_nothing(
    engine: Engine, events: Events, want: list[Any]
) -> None:
    """The attempt that loads it fails half way; the next one finds a part right."""
    events.before_restore(lambda: lose_all(engine, 1))
    events.before_loading(lambda: inject(engine, 1, abi.FAULT_WRITE_FAILS, WRITES))
    with Disturbed(engine, {3: lambda: inject(engine, 1, abi.FAULT_DONE_LOST)}):
        assert tokens(engine) == want
    (record,) = engine.recoveries
    placed = engine.plan.boards[1].placed_bytes
    assert placed < record.weight_bytes < 2 * placed and "has changed" not in record.cause
    assert not engine.weight_notices.latest


def test_a_changed_adapter_that_an_attempt_found_before_it_failed(
    engine: Engine, events: Events, want: list[Any]
) -> None:
    """A board fails while the adapters are compared, and the one with the damage has lost all by
    the next attempt."""

    def fail() -> None:
        inject(engine, 1, abi.FAULT_DONE_LOST)
        events.before_restore(lambda: lose_all(engine, 0))

    events.before_comparing(fail)
    at = {
        2: lambda: flip_adapter(engine, "b", 0),
        4: lambda: inject(engine, 1, abi.FAULT_DONE_LOST),
    }
    with Disturbed(engine, at):
        end_in_doubt(engine, "adapter 'b' has changed")
    (record,) = engine.recoveries
    assert "adapter 'b' has changed" in record.cause and tokens(engine) == want


@pytest.mark.parametrize("fails", [False, True])
def test_a_changed_adapter_behind_a_refused_row(
    engine: Engine, events: Events, want: list[Any], fails: bool
) -> None:
    """It is found before boards are reset, and its board loses all with the reset; also where the
    other board fails while adapters are compared."""
    if fails:
        events.before_comparing(lambda: inject(engine, 1, abi.FAULT_DONE_LOST))
    events.before_restore(lambda: lose_all(engine, 0))
    at = {2: lambda: flip_adapter(engine, "b", 0), 4: lambda: refuse(engine, 0)}
    with Disturbed(engine, at):
        end_in_doubt(engine, "adapter 'b' has changed")
    (record,) = engine.recoveries
    assert "adapter 'b' has changed" in record.cause and tokens(engine) == want


def interrupt() -> None:
    raise KeyboardInterrupt


def test_what_an_interrupted_recovery_has_loaded_again(
    engine: Engine, events: Events, want: list[Any]
) -> None:
    flip(engine)
    tokens(engine)
    events.before_comparing(interrupt)
    inject(engine, 1, abi.FAULT_DONE_LOST)
    with pytest.raises(KeyboardInterrupt):
        tokens(engine)
    with pytest.raises(LoraError, match="requests that have ended may hold wrong tokens"):
        engine.confirm()
    assert tokens(engine) == want


@pytest.mark.parametrize("damage", [flip_board_1, lambda one: flip_adapter(one, "b", 1)])
def test_damage_after_a_recovery_that_was_interrupted(
    engine: Engine, events: Events, want: list[Any], damage: Callable[[Engine], object]
) -> None:
    """A board that had lost all then has worked since."""
    events.before_restore(lambda: lose_all(engine, 1))
    events.before_rows(interrupt)
    at: dict[int, Callable[[], object]] = {2: lambda: inject(engine, 1, abi.FAULT_DONE_LOST)}
    with Disturbed(engine, at), pytest.raises(KeyboardInterrupt):
        tokens(engine)
    assert tokens(engine) == want
    damage(engine)
    at = {2: lambda: inject(engine, 1, abi.FAULT_DONE_LOST)}
    with Disturbed(engine, at):
        end_in_doubt(engine)
    assert tokens(engine) == want and engine.weight_notices.count == 1


def test_damage_that_a_recovery_found_right_before_another_one(
    engine: Engine, events: Events, want: list[Any]
) -> None:
    """No step lies between them, so nobody has asked yet what the first has found."""

    def fail() -> None:
        inject(engine, 1, abi.FAULT_DONE_LOST)
        events.before_restore(lambda: lose_all(engine, 1))

    events.before_record(fail)
    at = {2: lambda: flip(engine), 4: lambda: inject(engine, 1, abi.FAULT_DONE_LOST)}
    with Disturbed(engine, at):
        end_in_doubt(engine)
    assert len(engine.recoveries) == 2 and tokens(engine) == want


def test_the_next_recovery_begins_anew(engine: Engine, events: Events, want: list[Any]) -> None:
    def changed(event: Callable[[], object]) -> bool:
        event()
        inject(engine, 1, abi.FAULT_DONE_LOST)
        with suppress(LoraError):
            assert tokens(engine) == want
        assert tokens(engine) == want
        return "has changed" in engine.recoveries[-1].cause

    assert tokens(engine) == want
    assert changed(lambda: flip_adapter(engine, "b"))
    assert not changed(lambda: None) and engine.weight_notices.count == 1
    assert not changed(lambda: events.before_restore(lambda: lose_all(engine, 1)))
    assert changed(lambda: flip_adapter(engine, "b"))
