"""Beam search against transformers' own loop, which runs here on the boards' logits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_sdk import Engine
from tests.beam_cases import COUNT, MODELS, Found, cases, difference, expected, searched
from tests.variants import Scale, variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]
TIE = 1e-6  # apart: summation order may sort two hypotheses either way
MAX_TIES = 0.01  # of the hypotheses


def tied(ours: list[Found], theirs: list[Found]) -> bool:
    """Whether only hypotheses of nearly equal scores differ."""
    scores = [[score for _, score in found] for found in ours]
    other = [[score for _, score in found] for found in theirs]
    return all(
        abs(a - b) <= TIE * max(1.0, abs(a))
        for one, two in zip(scores, other, strict=True)
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize(("model", "scale"), MODELS)
def test_the_engine_searches_as_transformers_does(
    model: str, scale: Scale, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    from tests.parity.driven_beams import BoardLogits, driven

    folder = write_checkpoint(variant(model), tmp_path, scale)
    every = cases(model, scale, 2 * COUNT)
    with Engine(folder, boards=1, devices=devices, max_sequences=32) as engine:
        logits_of = BoardLogits(engine)
        theirs = [driven(case, logits_of, engine.config.vocabulary) for case in every]
    ties = hypotheses = 0
    for boards in (1, 2, 4):
        with Engine(folder, boards=boards, devices=devices, max_sequences=32) as engine:
            for case, found in zip(every, theirs, strict=True):
                ours = searched(engine, case)
                hypotheses += sum(map(len, ours))
                problem = difference(ours, found, 1e-5)
                ties += bool(problem) and tied(ours, found)
                assert not problem or tied(ours, found), (case, problem)
    assert hypotheses >= 3 * 150 and ties <= MAX_TIES * hypotheses
    for found, committed in zip(theirs, expected(model, scale), strict=False):
        assert not difference(committed, found, 1e-5)
