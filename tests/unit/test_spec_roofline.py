"""AAT's curve, rooflines, and the choice of a length: against the published case above all."""

import csv
import math
from itertools import pairwise

import pytest

from lora_host.errors import RequestError
from lora_lab.spec_tuning.aat import (
    Interpolated,
    LogFit,
    choose_curve,
    fit_aat,
    fit_sizes,
    monotone,
    r_squared,
)
from lora_lab.spec_tuning.modelled import DesignTimes
from lora_lab.spec_tuning.roofline import roofline
from lora_lab.spec_tuning.tune import choose_lengths, context_grid
from lora_lab.timing.facts import DATA
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import shape_config


def test_a_logarithm_is_found_again_from_five_lengths() -> None:
    for truth in (LogFit(1.63, 0.9, 0.5), LogFit(1.2, 0.4, -3.0), LogFit(1.75, 0.83, 1.6)):
        fit = fit_aat({rows: truth.a + truth.b * math.log(rows - truth.c)
                       for rows in fit_sizes(64)})  # fmt: skip
        for rows in range(2, 65):
            assert fit(rows) == pytest.approx(truth(rows), abs=2e-3)
        assert fit(1) == 1.0


def test_lengths_to_fit_are_few_and_spread() -> None:
    assert fit_sizes(64) == (2, 5, 11, 27, 64)
    assert fit_sizes(4) == (2, 3, 4)
    with pytest.raises(RequestError, match="cannot be fitted"):
        fit_sizes(2)
    with pytest.raises(RequestError, match="expected 3 to 5"):
        fit_aat({rows: 1.0 + rows for rows in range(2, 8)})
    with pytest.raises(RequestError, match="expected numbers for 2 rows"):
        fit_aat({1: 1.0, 2: 1.5, 3: 1.8})


def test_a_fit_emits_no_more_than_a_token_a_row() -> None:
    fit = LogFit(1.0 + 0.935 * math.log(2), 0.935, 0.5)  # 2.03 at two rows
    assert [fit(rows) for rows in (1, 2)] == [1.0, 2.0] and 2.0 < fit(3) < 3.0


def test_r_squared_is_the_share_of_variance() -> None:
    measured = {2: 1.0, 3: 2.0, 4: 3.0}
    assert r_squared(Interpolated((1, 4), (2.0, 2.0)), measured) == pytest.approx(0.0)
    assert r_squared(LogFit(1.0, 0.0, 0.0), {2: 1.0, 3: 1.0}) == 1.0
    assert r_squared(LogFit(1.5, 0.0, 0.0), {2: 1.0, 3: 1.0}) == 0.0


def test_a_bad_fit_gives_way_to_the_measurement() -> None:
    truth = LogFit(1.7, 0.85, 1.0)
    good = {rows: truth(rows) for rows in range(2, 65)}
    few = {rows: good[rows] for rows in fit_sizes(64)}
    chosen = choose_curve(few, good)
    assert chosen.used == "fit" and chosen.r2 > 0.98 and not set(chosen.fitted) & set(chosen.tested)
    flat = {rows: min(value, 2.5) for rows, value in good.items()}  # no logarithm any more
    chosen = choose_curve({rows: flat[rows] for rows in few}, flat)
    assert chosen.used == "measurement" and chosen.r2 < 0.98
    assert all(chosen.curve(rows) == pytest.approx(flat[rows]) for rows in flat)
    with pytest.raises(RequestError, match="only on the fitted lengths"):
        choose_curve(few, few)


def test_measurements_are_made_monotone() -> None:
    curve = monotone({2: 1.5, 4: 2.5, 8: 2.3, 16: 3.0})
    assert curve(4) == curve(8) == pytest.approx(2.4)
    assert curve(1) == 1.0 and curve(64) == pytest.approx(3.0)
    assert 1.5 < curve(3) < 2.4


class Times:
    """A machine: seconds a verification at each length, and of drafting."""

    def __init__(self, verify: float, ridge: int, draft: float) -> None:
        self._verify, self._ridge, self._draft = verify, ridge, draft

    def plain(self, context: int) -> float:
        return self._verify

    def verify(self, rows: int, context: int) -> float:
        return self._verify * max(1.0, rows / self._ridge)

    def draft(self, rows: int, context: int) -> float:
        return self._draft


def test_roofline_has_its_ridge_where_computing_begins_to_bound() -> None:
    aat = LogFit(1.63, 0.9, 0.5)
    line = roofline(Times(1.0, 16, 0.5), aat, 128, range(2, 65))
    assert line.ridge == 16 and line.plain == 1.0
    assert line.at(8).primary == pytest.approx(8.0)
    assert line.at(8).effective == pytest.approx(aat(8) / 1.5)
    assert line.best().rows == 16  # flat up to the ridge, then AAT grows slower than time
    with pytest.raises(RequestError, match="no round of 99"):
        line.at(99)


def test_speculation_is_off_where_it_cannot_pay() -> None:
    """III.B, case 1: bound by computing from the first row on, whatever the draft; and a draft
    whose tokens are never right."""
    compute_bound = roofline(Times(1.0, 1, 0.0), lambda rows: rows - 0.01, 128, range(2, 65))
    assert compute_bound.best().rows == 1
    wrong = roofline(Times(1.0, 64, 0.01), lambda rows: 1.0, 128, range(2, 65))
    assert wrong.best().rows == 1
    line = roofline(Times(1.0, 16, 0.0), LogFit(1.63, 0.9, 0.5), 128, range(2, 65))
    assert line.best().rows == 16 and line.best(slack=0.95).rows == 13
    small = roofline(Times(1.0, 64, 0.0), lambda rows: 1.02, 128, range(2, 65))
    assert small.best().rows == 2 and small.best(margin=1.05).rows == 1


@pytest.mark.parametrize("board", ["u280", "v80"])
def test_published_lengths_and_speedups(board: str) -> None:
    """Llama-3.1-8B with LongSpec, tables I and IV: best lengths within 2, speed-ups within 8%."""
    target = make_target("flightllm-sd", board, shape_config("llama3.1-8b"), 1)
    draft = target.draft
    assert draft is not None
    compared = 0
    for context, rows, speedup in published(board):
        (choice,) = choose_lengths(
            DesignTimes(target),
            lambda at: lambda x: draft.aat(x, at),
            [context], context, range(2, 65),
        )  # fmt: skip
        assert abs(choice.rows - rows) <= 2, (context, rows, choice)
        assert choice.speedup == pytest.approx(speedup, rel=0.08), context
        compared += 1
    assert compared == {"u280": 4, "v80": 8}[board]


def published(board: str) -> list[tuple[int, int, float]]:
    """(context, best length, best speed-up) as printed for the board; table I is the V80."""
    with (DATA / "published.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["source"], row["metric"], row["conditions"].split(" x=")[0]): row["value"]
                for row in csv.DictReader(file)}  # fmt: skip
    names = {
        "SD T4": (f"{board.upper()} best set", f"{board.upper()} best speedup (printed)"),
        "SD T1": ("best verification length", "best speedup") if board == "v80" else ("", ""),
    }
    return [
        (int(at.removeprefix("ctx ")), int(value), float(rows[source, names[source][1], at]))
        for (source, metric, at), value in rows.items()
        if source in names and metric == names[source][0]
    ]


def test_contexts_are_looked_at_in_equal_factors() -> None:
    grid = context_grid(1024)
    assert grid[:4] == [1, 32, 45, 64] and grid[-1] < 1024
    assert all(b / a < 1.5 for a, b in pairwise(grid[1:]))
    assert context_grid(8) == [1]
    with pytest.raises(RequestError, match="at least 1"):
        context_grid(0)
