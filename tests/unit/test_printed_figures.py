"""Speeds that README and docs/timing.md print are those of the timing model, and the first one of
boards is what the hardware source reaches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lora_lab.timing.counted_attention import added_ms, attention_ms
from lora_lab.timing.designs import design_names, load_design
from lora_lab.timing.model import token_time
from lora_lab.timing.target import ArrayTarget, make_target
from lora_sdk.model.shapes import shape_config
from tests.unit import simulated_layer

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/timing.md")
}
OWN = [name for name in design_names() if load_design(name).origin == "own"]
SPEED = re.compile(r"([\d.]+) tokens/s(?:, ([\d.]+) with a tree)?")
LONG = re.compile(r"Llama-3.1-8B, context (\d+)")
NO_TREE = ", no better with a tree"
SOURCE, CHANNELS = "source-u280", "channels-u280"
COLUMNS = 7  # of a table's line cut at its bars: design, boards, state, ideal, counted attention


def rate(design: str, boards: int, model: str, context: int, mode: str = "ar") -> float:
    return token_time(
        make_target(design, None, shape_config(model), boards), "", context, mode
    ).tokens_per_second


def rows() -> list[tuple[str, int, str, int, str, str | None, str]]:
    """Design, boards, model, context, and speeds plain, with a tree and with counted attention
    units, of each row of the table of our own designs. A row without a design is of the one
    above."""
    found, design = [], ""
    for line in PAGES["docs/timing.md"].partition("## Designs of our own")[2].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        speed = SPEED.fullmatch(cells[-3].replace(NO_TREE, "")) if len(cells) == COLUMNS else None
        if speed is None:
            continue
        design = cells[1].split(",")[0].strip("*") or design
        where = LONG.search(cells[2])
        model, context = ("llama3.1-8b", int(where[1])) if where else ("llama2-7b", 128)
        boards = int(cells[2].split()[0])
        found.append((design, boards, model, context, speed[1], speed[2], cells[-2]))
    return found


def shown(value: float, text: str) -> bool:
    """Whether `text` is the value, rounded to its digits."""
    digits = len(text.partition(".")[2])
    return f"{value:.{digits}f}" == text


@pytest.mark.parametrize("mode", ["ar", pytest.param("sd", marks=pytest.mark.slow)])
def test_the_table_of_our_own_designs_has_what_the_model_says(mode: str) -> None:
    found = rows()
    assert {row[0] for row in found} == set(OWN) and len(found) >= 5
    for design, boards, model, context, plain, tree, counted in found:
        speed = plain if mode == "ar" else tree
        if speed:
            assert shown(rate(design, boards, model, context, mode), speed), (design, boards)
        assert shown(1e3 / with_counted(design, boards, model, context), counted), (design, boards)


def with_counted(design: str, boards: int, model: str, context: int, stages: int = 1) -> float:
    """Milliseconds of a plain token with the attention units that the design was counted with."""
    target = make_target(design, None, shape_config(model), boards, stages=stages)
    assert isinstance(target, ArrayTarget)
    more = added_ms(target.design, target.config, target.attention_case(context))
    assert more is not None
    return 1e3 * target.decode(context).seconds + more


def test_tables_of_hosts_and_stages_have_counted_attention() -> None:
    page = PAGES["docs/timing.md"]
    for boards, text in ((1, "32 replicas of 1"), (8, "4 replicas of 8")):
        (found,) = re.findall(rf"^\| {text} \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
        assert shown(with_counted("own-u280", boards, "llama2-7b", 1024), found)
    (line,) = re.findall(r"^\| own-u280, 32 boards in a ring (.*)", page, re.MULTILINE)
    for stages, found in zip((1, 2, 4), re.findall(r"\(([\d.]+)\)", line), strict=False):
        assert shown(with_counted("own-u280", 32, "llama2-70b", 1024, stages), found)


REACHED = re.compile(
    r"^\| (\d) x (U280|V80) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| \d+ \|",
    re.MULTILINE,
)


def test_what_our_designs_would_reach_has_its_parts() -> None:
    """Dispatch, host accesses and sums of weights, ms, and tokens/s."""
    found = REACHED.findall(PAGES["docs/timing.md"])
    assert len(found) == 4
    for boards, board, *shares, speed in found:
        target = make_target(f"own-{board.lower()}", None, shape_config("llama2-7b"), int(boards))
        report = token_time(target, "", 128)
        for name, share in zip(("dispatch", "host", "scrub"), shares, strict=True):
            assert shown(report.breakdown_ms[name], share), (boards, board, name)
        assert shown(report.tokens_per_second, speed), (boards, board)


@pytest.mark.parametrize("page", PAGES)
def test_what_has_no_hardware_is_called_so(page: str) -> None:
    for line in PAGES[page].splitlines():
        if SPEED.search(line) and re.match(r"\| \**own-", line):
            assert "no hardware" in line or "the same" in line, line


@pytest.mark.parametrize("page", PAGES)
def test_the_first_speeds_of_boards_are_those_of_the_source(page: str) -> None:
    text = PAGES[page]
    tables = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    speeds = sorted((float(found[1]), found[1]) for found in list(SPEED.finditer(tables))[:2])
    for design, (_, speed) in zip((SOURCE, CHANNELS), speeds, strict=True):
        assert shown(rate(design, 1, "llama2-7b", 128), speed)
    for cycles in (simulated_layer.CYCLES, simulated_layer.TOKEN):
        assert f"{cycles:,}" in text
    if page == "README.md":  # what `make demo` prints
        printed = [line for line in text.splitlines() if line.startswith("modelled: ")]
        assert printed[0].startswith("modelled: this project's hardware source on")
        assert "not built" in printed[1] and printed[2].startswith("modelled: of these ")
        assert len(printed) == 3 and all(" ms in all, prefill" in line for line in printed[:2])


def test_the_design_of_ones_own_is_timed_and_said_to_be_none(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(mine:.*?)```", PAGES["docs/timing.md"], re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    target = make_target(str(tmp_path / "mine.yaml"), None, shape_config("llama2-7b"), 1)
    assert token_time(target, "", 128).tokens_per_second > rate(
        "own-u280-4096", 1, "llama2-7b", 128
    )
    assert any("no hardware" in note for note in target.notes)


def test_whole_times_in_the_text_are_the_models() -> None:
    page = " ".join(PAGES["docs/timing.md"].split())
    overlay = token_time(make_target("lora_f_u280", None, shape_config("llama2-7b"), 1), "", 128)
    own = token_time(make_target("own-u280", None, shape_config("llama2-7b"), 4), "", 128)
    assert f"in HBM: {overlay.latency_ms:.0f} ms a token at context 128, everything counted" in page
    assert f"is charged, of its {own.latency_ms:.2f} in all (modelled)" in page


def test_a_design_that_fits_by_counts_says_what_its_counted_attention_would_add() -> None:
    """The figure of the pages and the command's note; the units are those of the card's source."""
    config = shape_config("llama2-7b")
    for boards, words in ((1, "would add {} ms to the 10.5 of a token"), (4, "{} ms on four")):
        notes = token_time(make_target("own-u280-4096", None, config, boards), "", 128).notes
        (note,) = (note for note in notes if "2 attention units" in note)
        found = re.search(r"would add ([\d.]+) ms to a plain token at context 128", note)
        assert found is not None and float(found[1]) > 0.3
        assert words.format(found[1]) in " ".join(PAGES["docs/timing.md"].split())
        if boards == 1:
            assert f"would add {found[1]} ms a token" in PAGES["docs/timing.md"]
    one = attention_ms(config, 1, 128, 1, 250e6)
    assert one == 2 * attention_ms(config, 1, 128, 2, 250e6)
    source = token_time(make_target(SOURCE, None, config, 1), "", 128)
    assert 0.3 < one / source.breakdown_ms["attention"] < 0.7  # INT8 K and V, where it has FP16
    assert not token_time(make_target("lora-f", None, config, 1), "", 128).notes[2:]


def test_the_parts_of_the_sources_token_are_what_its_command_prints() -> None:
    by = token_time(make_target(SOURCE, None, shape_config("llama2-7b"), 1), "", 128).breakdown_ms
    parts = PAGES["docs/timing.md"].partition("| part of a token | ms |")[2].partition("\n\n")[0]
    printed = re.findall(r"\| ([\d.]+) \|$", parts, re.MULTILINE)
    values = [by["weights"], by["attention"], by["vfu"], by["kv"], by["start_up"] + by["dispatch"]]
    for value, text in zip(values, printed, strict=True):
        assert shown(value, text)


def test_the_token_of_the_source_is_its_simulated_layers_and_the_rest() -> None:
    """32 layers, and between 2 and 4% more: lm_head of 32,000 columns, the final norm, argmax, what
    is left of a commit, and control."""
    found = token_time(make_target(SOURCE, None, shape_config("llama2-7b"), 1), "", 128)
    layers = 32 * simulated_layer.LAYER_CYCLES
    assert 1.02 < found.latency_ms * 250e3 / layers < 1.06
