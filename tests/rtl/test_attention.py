"""The attention unit against the NumPy model: docs/numbers.md, 3.8, 3.13, 3.14, 6.6 and 6.7."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from tests.rtl.attention_rig import KINDS, Attention, anything, bits, cancelling, finite
from tests.rtl_rig import ROOT, build, units_runner
from tests.unit.kernel_rig import ONCHIP, Rig
from tests.unit.test_kernels_quantized import QuantizedAttention

pytestmark = pytest.mark.rtl

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@EVERY_KIND
def test_a_million_products(units: Any, kind: str) -> None:
    case = Attention(kind, 128, (150, 96, 67), 9, (4, 1, 4))
    assert case.products() > 900_000 and case.same(units)
    assert Attention(kind, 64, (33, 64, 1), 12, (4, 4, 1), seed=1, scale=0.125).same(units)


@EVERY_KIND
@pytest.mark.parametrize("head_dim", [2, 8, 40, 96, 224, 256])
def test_sizes_of_heads(units: Any, kind: str, head_dim: int) -> None:
    assert Attention(kind, head_dim, (40, 3, 0), 3, seed=head_dim).same(units)


@pytest.mark.parametrize("head_dim", [1, 7, 33, 129])
def test_odd_heads(units: Any, head_dim: int) -> None:
    assert Attention("fp16", head_dim, (40, 3, 0), 3, seed=head_dim).same(units)


@EVERY_KIND
@pytest.mark.parametrize("seed", range(4))
def test_any_bits(units: Any, kind: str, seed: int) -> None:
    """Infinities and NaN among q, K, V and their scales; few positions: most sums stay finite."""
    scale = (0.1, 3e38, np.inf, 1e-30)[seed]
    for committed in ((0, 0, 0), (1, 2, 35)):
        case = Attention(kind, 32, committed, 6, path=(0, 2), draw=anything, seed=seed, scale=scale)
        assert case.same(units)


@EVERY_KIND
@pytest.mark.parametrize(
    "slope_kind", [abi.SLOPE_NONE, abi.SLOPE_DISTANCE, abi.SLOPE_BF16_POSITION]
)
@pytest.mark.parametrize("cap", [0.0, 1.7])
def test_slopes_caps_and_windows(units: Any, kind: str, slope_kind: int, cap: float) -> None:
    for window in (0, 1, 34):
        fields = {"slope_kind": slope_kind, "cap": bits(cap), "window": window}
        case = Attention(kind, 8, (70, 290, 33), 3, (2, 1, 2), fields=fields, seed=window)
        assert case.same(units)


@EVERY_KIND
def test_a_long_path(units: Any, kind: str) -> None:
    """A path over all scratch pages, whose positions cross a tile."""
    assert Attention(kind, 16, (30, 0, 0), 1, (2, 1, 2), path=(119, 120)).same(units)


@EVERY_KIND
def test_pages_in_banks_of_their_own(units: Any, kind: str) -> None:
    assert Attention(kind, 16, (130, 200, 7), 3, spills=True).same(units)


def above_and_below(generator: np.random.Generator, tiles: int) -> np.ndarray:
    return np.resize(np.repeat([5, 6, 7], 30), tiles)


@EVERY_KIND
def test_chunks(units: Any, kind: str) -> None:
    """More than two chunks; a window that begins within the first one."""
    for window in (0, 5000):
        case = Attention(
            kind, 8, (8237, 0, 0), 1, (1, 1, 1), scale=0.01, pages=above_and_below,
            fields={"window": window},
        )  # fmt: skip
        assert case.same(units)


@pytest.fixture
def memory(units: Any) -> Iterator[Callable[[int, int], None]]:
    yield units.lora_rtl_memory
    units.lora_rtl_memory(0, 0)


@EVERY_KIND
def test_selected_rows_and_slow_memory(
    units: Any, kind: str, memory: Callable[[int, int], None]
) -> None:
    memory(40, 90)
    assert Attention(kind, 40, (70, 4, 33), 3, selected=(1, 4, 6)).same(units)


def read_back(runner: Any, scales: np.ndarray) -> np.ndarray:
    """V of one position a scale, as attention reads it: bytes -128 to 127, [scales, 256]."""
    rig = Rig(bank_bytes=4 << 20, runner=runner)
    tool = QuantizedAttention(rig, 256, 1, abi.KV_INT8_HEADS)
    numbers = np.arange(-128, 128).astype(np.int8)[None]
    for slot, scale in enumerate(scales):
        tool.slot(slot, 0, -1, 0, (numbers * 0, np.ones(1, np.float16)), (numbers, scale[None]))
        tool.row(slot, 0, slot)
    rig.rows(len(scales))
    rig.place_rows(ONCHIP, 64, 512, np.zeros((len(scales), 256), np.float16))
    found = rig.run(
        "attention", head_dim=256, kv_layer=tool.layer, q_heads=1, kv_heads=1, group=1, q_offset=64,
        q_stride=512, y_offset=1 << 20, y_stride=512, scale=bits(1.0),
    )  # fmt: skip
    assert found.status == 0
    return rig.read_rows(ONCHIP, 1 << 20, 512, (len(scales), 256), np.uint16)


def test_every_byte_with_scales_of_every_kind(units: Any) -> None:
    """Scales of every exponent, subnormals, infinities and NaN."""
    exponents = np.arange(64, dtype=np.uint16) << 10
    for fraction in (0, 0x155, 0x3FF):
        scales = (exponents | np.uint16(fraction)).view(np.float16)
        made = read_back(units_runner(units), scales)
        numbers = np.arange(-128, 128).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = (numbers * scales.astype(np.float32)[:, None]).astype(np.float16)
        wanted = wanted + np.float16(0)  # a sum begins at +0
        wanted[np.isnan(wanted)] = np.uint16(0x7E00).view(np.float16)
        assert np.array_equal(made, wanted.view(np.uint16))


def test_what_the_unit_has_no_room_for_runs_natively(units: Any) -> None:
    before = rtl.simulated_work(units)
    Attention("fp16", 264, (3, 0, 0), 1, (1, 1, 1), bank_bytes=4 << 20).run(units_runner(units))
    assert rtl.simulated_work(units).attention == before.attention + 1


MISTAKES = {  # each shows in its own case alone
    "rounding": ("attention/kv_weight.sv", "lost[7] && (kept[0] || lost[6:0] != 7'd0)", "lost[7]"),
    "segment order": ("attention/kv_join.sv", "2'd0: first_slot = {pair, 1'b0};",
                      "2'd0: first_slot = {pair[0], pair[1], 1'b0};"),
    "page index": ("attention/attention.sv", "table_data[tile[4:0]]",
                   "table_data[tile[4:0] & 5'h1d]"),
    "order of a path": ("attention/attention.sv", "from_last = 8'(count - 18'd1 - p)",
                        "from_last = depth > 8'd50 ? 8'(p - committed) : 8'(count - 18'd1 - p)"),
    "one head of K and V for all": ("attention/head_walk.sv", "of_group + 16'd1 == group;",
                                    "of_group + 16'd1 == group && group != 16'd3;"),
    "weights of the first tile for all": ("attention/kv_sums.sv",
                                          "{1'b0, side, 5'd0} + {1'b0, turn}", "{1'b0, turn}"),
    "tiles of two chunks side by side": ("attention/attention.sv",
                                         "whole && !chunk_ends &&", "whole &&"),
    "sums of two heads in one": ("attention/kv_sums.sv",
                                 "&& !(integers && pass.clear && unread_integers)", ""),
}  # fmt: skip
CASES = {
    "rounding": Attention("int8_heads", 32, (20, 20, 20), 3),
    "segment order": Attention("fp16", 256, (20, 20, 20), 3, draw=cancelling),
    "page index": Attention("int8", 32, (90, 90, 90), 3),
    "order of a path": Attention(
        "fp16", 32, (0, 0, 0), 1, path=(119, 120), fields={"slope_kind": abi.SLOPE_DISTANCE}
    ),
    "one head of K and V for all": Attention("int8", 8, (30, 30, 30), 1, (6, 2, 3)),
    "weights of the first tile for all": Attention("fp16", 64, (100, 100, 100), 1),
    "tiles of two chunks side by side": Attention(
        "fp16",
        8,
        (8237, 0, 0),
        1,
        (1, 1, 1),
        scale=0.01,
        pages=above_and_below,
        fields={"window": 5000},
    ),
    "sums of two heads in one": Attention("int8", 256, (20, 20, 20), 1, (2, 1, 2)),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A unit with all of these mistakes."""
    folder = tmp_path_factory.mktemp("wrong")
    sources = shutil.copytree(ROOT / "overlays" / "rtl", folder / "rtl")
    for path, right, mistaken in MISTAKES.values():
        text = (sources / path).read_text()
        assert text.count(right) == 1, right
        (sources / path).write_text(text.replace(right, mistaken))
    return build(folder / "build", sources, unit="attention")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(units: Any, wrong: Any, name: str) -> None:
    assert not CASES[name].same(wrong)
    assert CASES[name].same(units)


def test_what_has_no_mistake_is_right(wrong: Any) -> None:
    assert Attention("fp16", 40, (20, 33, 5), 3, draw=finite).same(wrong)
