"""Cards whose INT8 matmuls run on channels, a bank each, where an overlay places whole columns: the
same bytes as emulated boards with that overlay, in fewer cycles than on the card without."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lora_host import abi, sim
from lora_host.errors import LoraError
from lora_sdk import Engine, SamplingParams, demo_model_path
from lora_sdk.compile import isa
from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from tests.adapter_folders import Folder, write_adapter
from tests.calibrated import random_windows
from tests.rtl import card_steps
from tests.rtl.card_build import SURROUNDINGS, build, wide
from tests.rtl.card_cases import WIDE, WIDE_LANES
from tests.rtl.card_steps import Step, chain, llama
from tests.rtl.card_table import compared
from tests.rtl.column_overlays import channel_cards, column_overlay
from tests.rtl.generations import Fault, Request
from tests.rtl.step_cycles import Measured, measure
from tests.rtl.test_card import compare, expected, generated
from tests.unit import simulated_layer
from tests.variants import Variant, write_checkpoint

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.usefixtures("cards")]
LONG = pytest.mark.long  # `make rtl-slow` builds cards of four channels alone, and runs the rest

TALL = Variant("tall", llama(192, 6, 2, 32, 320, 2))  # columns of two and three blocks
LATENCY = 31  # cycles of 122.2 ns at 250 MHz
SLACK = 0.05  # of the timing model
TOKENS = 2
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(TALL, tmp_path_factory.mktemp("tall") / "model")


def overlay(channels: int, tmp_path: Path) -> str:
    return str(column_overlay(tmp_path / f"lora_{channels}", channels))


def cards(channels: int) -> Mapping[str, str]:
    return {"LORA_TEST_CARDS": str(channel_cards(channels))}


@pytest.mark.parametrize(
    ("channels", "boards", "scheme"),
    [
        (4, 1, "w4a8"),
        pytest.param(4, 1, "w8a8", marks=LONG),
        pytest.param(4, 2, "w4a8_wide", marks=LONG),
        pytest.param(4, 1, "w8a8_dynamic", marks=LONG),
        pytest.param(2, 1, "w8a8", marks=LONG),
        pytest.param(2, 2, "w4a8", marks=LONG),
        pytest.param(2, 1, "w8a8_mixed", marks=LONG),  # FP16 matmuls, which the other array has
        pytest.param(2, 1, "w4a16", marks=LONG),
        pytest.param(8, 1, "w8a8", marks=LONG),
        pytest.param(32, 1, "w4a8", marks=LONG),
        pytest.param(32, 1, "w8a8", marks=LONG),
    ],
)
def test_tokens_bytes_and_frames_are_those_of_emulated_boards(
    folder: Path, channels: int, boards: int, scheme: str, tmp_path: Path
) -> None:
    """Ports answer when they like, the units' in any order."""
    request = Request(str(folder), boards, 4, scheme=scheme, overlay=overlay(channels, tmp_path))
    compare(request, cards(channels))


@pytest.mark.parametrize("passed", [400, *(pytest.param(n, marks=LONG) for n in (40, 1200, 2000))])
def test_a_line_that_cannot_be_read_ends_all_units(
    folder: Path, passed: int, tmp_path: Path
) -> None:
    """After so many reads of units and channels. Behind it the right tokens follow."""
    fault = Fault(0, 1, abi.FAULT_UNIT_FAILS, (abi.UNIT_MPU, passed))
    placed = overlay(4, tmp_path)
    request = Request(str(folder), 1, 12, scheme="w8a8", fault=fault, overlay=placed)
    seen, wanted = generated(request, cards(4)), expected(folder, 1, 12, "w8a8")
    assert seen.error and 1 <= len(seen.tokens) < 12 and seen.codes == [abi.ERR_UNIT]
    assert seen.tokens == wanted.tokens[: len(seen.tokens)]
    assert seen.after == (wanted.tokens + wanted.after)[seen.rows :][:4]


def tokens(model: Path, placed: str, device: str, adapter: Path | None = None) -> list[int]:
    greedy = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
    with Engine(
        model, 1, [f"{device}:u280"], speculation=None, overlay=placed, check_weights="off",
        max_adapters=1 if adapter else 0,
    ) as engine:  # fmt: skip
        if adapter:
            engine.load_adapter("one", adapter)
            greedy = replace(greedy, adapter="one")
        return list(engine.generate([PROMPT], greedy)[0].token_ids)


def use(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    bench = sim.Bench(library=sim.load(library))
    monkeypatch.setattr("lora_host.cluster.Cards", partial(sim.Cards, bench=bench))


@LONG
@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("recipe", [Recipe("w8a8"), Recipe("w4a8")], ids=["w8a8", "w4a8"])
def test_tokens_of_the_demo_model(
    recipe: Recipe, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, model = demo_model_path(), tmp_path / "model"
    quantize(plain, model, recipe, random_windows(load_config(plain).vocabulary, count=2))
    use(monkeypatch, channel_cards(channels))
    placed = overlay(channels, tmp_path)
    wanted = tokens(model, placed, "emu")
    assert tokens(model, placed, "sim") == wanted and len(wanted) == TOKENS


@LONG
def test_an_adapter(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matmuls run on the array without channels."""
    model = tmp_path / "model"
    windows = random_windows(load_config(folder).vocabulary, count=2)
    quantize(folder, model, Recipe("w8a8"), windows)
    adapter = write_adapter(TALL, Folder("one"), tmp_path / "one")
    use(monkeypatch, channel_cards(4))
    placed = overlay(4, tmp_path)
    wanted = tokens(model, placed, "emu", adapter)
    assert tokens(model, placed, "sim", adapter) == wanted
    assert wanted != tokens(model, placed, "emu")


MISTAKES = (
    ("it.place, &c.channel_line_data", "reads_[0].front().place, &c.channel_line_data"),
    ("reads_[i].pop_front();", "if (timing_.unless(50)) reads_[i].pop_front();"),
)


@pytest.mark.parametrize(("right", "wrong"), [MISTAKES[0], pytest.param(*MISTAKES[1], marks=LONG)])
def test_mistakes_around_the_channels_are_noticed(
    right: str, wrong: str, folder: Path, tmp_path: Path
) -> None:
    """A line of another bank, a line twice."""
    sources = Path(shutil.copytree(SURROUNDINGS, tmp_path / "sim"))
    text = (sources / "channel_memory.hpp").read_text()
    assert text.count(right) == 1
    (sources / "channel_memory.hpp").write_text(text.replace(right, wrong))
    library = build(
        tmp_path, sources, CHANNELS=4, LANES=8, MORE="--assert", BUILD=channel_cards(4).parent
    )
    request = Request(str(folder), 1, 4, scheme="w8a8", overlay=overlay(4, tmp_path))
    try:
        seen = generated(request, {"LORA_TEST_CARDS": str(library)})
    except (AssertionError, LoraError):  # the source's own assertions end the process
        return
    assert seen.tokens != expected(folder, 1, 4, "w8a8").tokens


def matmul_cycles(found: Measured) -> tuple[int, int]:
    """Cycles of the last step, and of its INT8 matmuls."""
    (run,) = found.steps[-1]
    return run.cycles, sum(run.ends[index] - run.begins[index] for index, _ in integers(found))


def integers(found: Measured) -> list[tuple[int, isa.Matrix]]:
    """INT8 matmuls of the list, with their indices."""
    return [
        (index, command)
        for index, command in enumerate(found.lists[0])
        if isinstance(command, isa.Matrix) and command.weight_type != abi.WEIGHT_FP16
    ]


def bank_lines(found: Measured, channels: int) -> int:
    """Lines of W8A8 weights that the busiest bank of each matmul has, together."""
    block = abi.BLOCK_K * abi.BLOCK_N // abi.LINE_BYTES
    return sum(
        -(-command.n // (abi.BLOCK_N * channels)) * -(-command.k // abi.BLOCK_K) * block
        for _, command in integers(found)
    )


@pytest.mark.parametrize(
    ("scheme", "channels", "most"),
    [
        ("w8a8", 4, 0.3),
        pytest.param("w8a8", 2, 0.6, marks=LONG),
        # of 512 columns a channel's scale-and-add takes 3.5 cycles a line
        pytest.param("w4a8_wide", 4, 0.75, marks=LONG),
    ],
)
def test_matmuls_take_a_part_of_the_cycles(
    scheme: str, channels: int, most: float, tmp_path: Path
) -> None:
    """Prints what docs/channel.md quotes."""
    layer = card_steps.Request(llama(512, 8, 8, 64, 1408), (Step(40, chain(1)),), scheme)
    whole, alone = matmul_cycles(measure(layer, LATENCY, wide()))
    placed = replace(layer, overlay=overlay(channels, tmp_path))
    measured = measure(placed, LATENCY, channel_cards(channels))
    steps, spent = matmul_cycles(measured)
    print(f"\n{scheme}, cycles of a step and of its matmuls: one array {whole}, {alone};")
    print(f"{channels} channels {steps}, {spent}")
    assert spent < most * alone
    (both,) = compared(placed, measured)
    print(f"modelled {both.modelled:.0f}, {both.error:+.2%}")
    assert abs(both.error) <= SLACK, both
    assert scheme != "w8a8" or spent < 1.1 * bank_lines(measured, channels)
    assert steps < whole - 0.9 * (alone - spent)


@LONG
def test_weights_are_read_under_another_matmul(tmp_path: Path) -> None:
    """Banks of the board's rate: while `o` runs `up` gets a head start. 8,392 cycles; 8,675 without
    it."""
    layer = card_steps.Request(llama(128, 4, 4, 32, 2816), (Step(40, chain(1)),), "w8a8")
    placed = replace(layer, overlay=overlay(2, tmp_path))
    found = measure(placed, 0, channel_cards(2))
    (run,) = found.steps[-1]
    spent = {one.what: run.ends[index] - run.begins[index] for index, one in integers(found)}
    assert spent["matrix up"] < 8450


@LONG
@pytest.mark.parametrize(("channels", "cycles"), simulated_layer.CHANNELS.items())
def test_a_layer_of_llama2_7b_takes_no_more_than_pages_quote(
    channels: int, cycles: int, tmp_path: Path
) -> None:
    """On cards as `make -C csrc/sim CHANNELS=32 FLOATS=4` builds them, with FP16 lanes in all four
    attention units."""
    layer = replace(WIDE["a layer of LLaMA2-7B"], overlay=overlay(channels, tmp_path))
    folder = channel_cards(channels).parent / "wide"
    measured = measure(layer, LATENCY, build(folder, CHANNELS=channels, FLOATS=4))
    (found,) = compared(layer, measured, WIDE_LANES, floats=4)
    print(f"\nsimulated: {channels} channels, {found.simulated} cycles, modelled {found.modelled}")
    assert abs(found.error) <= SLACK, found
    assert 0.96 * cycles < found.simulated <= cycles  # quoted with sums of norms of three cycles
