"""Boards compare what they gathered before a step completes: a block that is filed wrongly, or
garbled behind a right CRC, gives no other text."""

from __future__ import annotations

import pytest

from lora_host import abi
from lora_host.errors import LinkError
from lora_sdk import Engine, Result, SamplingParams
from tests.recovery_rig import Disturbed, Folders, mixed, opened, texts, write_folders

PROMPT = list(range(5, 45))
PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
# Frames that pass first: of a prompt's or an early step's gathers, and of votes among them.
AFTER = (0, 11, 40)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("gathered"))


_texts: dict[str, object] = {}


def undisturbed(folders: Folders) -> object:
    """The texts of mixed requests without failures."""
    if not _texts:
        with opened(folders, 1) as engine:
            _texts["mixed"] = texts(engine, mixed(3))
            _texts["lone"] = tokens(engine)
    return _texts


def tokens(engine: Engine) -> list[int]:
    found = engine.generate(PROMPT, PARAMS)
    assert isinstance(found, Result)
    return list(found.token_ids)


def strike(engine: Engine, board: int, kind: int, after: int, count: int = 1) -> None:
    emulated = engine.cluster.emulated
    assert emulated is not None
    emulated.fault(board, abi.FAULT_NONE)
    emulated.fault(board, kind, 0, after, count)


@pytest.mark.parametrize("kind", ["FAULT_MISFILE", "FAULT_LINK_GARBLE"])
@pytest.mark.parametrize("boards", [2, 4])
def test_one_bad_block_costs_a_step_and_no_text(folders: Folders, boards: int, kind: str) -> None:
    want = undisturbed(folders)
    with opened(folders, boards) as engine:
        for greedy in (True, False):
            for after in AFTER:
                redone = engine.cluster.stats().redone_steps

                def fail(after: int = after) -> None:
                    strike(engine, boards - 1, getattr(abi, kind), after)

                if greedy:  # boards choose the tokens
                    fail()
                    assert tokens(engine) == want["lone"]  # type: ignore[index]
                else:
                    with Disturbed(engine, {3: fail}):
                        assert texts(engine, mixed(3)) == want["mixed"]  # type: ignore[index]
                assert engine.cluster.stats().redone_steps == redone + 1, (greedy, after)
        assert not engine.recoveries


@pytest.mark.parametrize("board", [0, 2, 3])
def test_the_error_names_the_board_and_its_router(folders: Folders, board: int) -> None:
    """Of four boards three agree."""
    with opened(folders, 4, recovery="off") as engine:
        strike(engine, board, abi.FAULT_MISFILE, 0, 0)
        wanted = rf"board {board} .*unit ROUTER: gathered rows"
        with pytest.raises(LinkError, match=wanted) as found:
            tokens(engine)
        assert found.value.failure is not None
        assert found.value.failure.code == abi.ERR_GATHERED
        assert (found.value.failure.board, found.value.failure.unit) == (board, abi.UNIT_ROUTER)


@pytest.mark.parametrize("kind", ["FAULT_MISFILE", "FAULT_LINK_GARBLE"])
def test_a_board_that_always_spoils_blocks_is_left_out(folders: Folders, kind: str) -> None:
    want = undisturbed(folders)
    with opened(folders, 4) as engine:
        strike(engine, 2, getattr(abi, kind), 5, 0)
        assert tokens(engine) == want["lone"]  # type: ignore[index]
        assert any(one.left_out for one in engine.recoveries)
