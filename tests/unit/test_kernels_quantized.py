"""Integer kernels: every native variant against the NumPy model, bit for bit, on random bytes and
on extreme values, and a scalar spelling of the contract for both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lora_host import abi, native
from lora_host.numerics import exp32
from lora_host.segments import segment_bounds
from tests.unit import kernel_rig
from tests.unit.kernel_rig import CONTROL, ONCHIP, SELECTED, TABLES, WEIGHT_BANKS, Rig
from tests.unit.test_kernels_attention import Attention
from tests.unit.test_kernels_native import (
    EVERY,
    EXTREMES,
    SEEN,
    run_native,
    seen_fields,
    values,
    variants,
)

INT8, W4A8, W4A16 = abi.WEIGHT_INT8, abi.WEIGHT_W4A8, abi.WEIGHT_W4A16
FP16, FP32, NO_BIAS = abi.FP16, abi.FP32, abi.FLAG_NO_BIAS
BLOCK_BYTES = {0: 4096, 32: 2368, 64: 2240, 128: 2176}
LINE, FIRST, MERGE = 3, 5, 2
X, Y, STRIDE = 64, 1 << 19, 1 << 12
FEW = settings(max_examples=20, deadline=None,
               suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip


@pytest.fixture(params=EVERY)
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    if not dict(variants()).get(request.param):
        pytest.skip(f"{request.param}: not on this machine")
    lib = native.lib()
    assert lib.lora_native_force(request.param.encode()) == 0
    yield request.param
    lib.lora_native_force(native.ffi().NULL)


def both(build: Any) -> Any:
    """Runs `build` on a rig of each implementation and compares memory and counts."""
    results = []
    for runner in (kernel_rig.numpy_runner, run_native):
        rig = Rig(runner=runner, bank_bytes=1 << 20)
        results.append((rig.banks, build(rig)))
    (memory, found), (native_memory, native_found) = results
    for bank in memory:
        different = np.flatnonzero(memory[bank] != native_memory[bank])
        assert different.size == 0, f"bank {bank}, first byte {different[0]:#x}"
    assert found == native_found
    return found


def random_bytes(seed: int, *shape: int, extreme: float = 0.0) -> np.ndarray:
    """INT8 of every value, a share of them at the ends."""
    generator = np.random.default_rng(seed)
    found = generator.integers(-128, 128, shape).astype(np.int8)
    ends = generator.random(shape) < extreme
    found[ends] = generator.choice(np.array([-128, -127, 127], np.int8), int(ends.sum()))
    return found


def fill_weights(rig: Rig, seed: int, group: int, extreme: float) -> None:
    """Any bytes are weights and zero points; scales are FP16 of moderate size or extremes."""
    generator = np.random.default_rng(seed)
    size = BLOCK_BYTES[group]
    for bank in range(WEIGHT_BANKS[0], WEIGHT_BANKS[0] + WEIGHT_BANKS[1]):
        count = (len(rig.banks[bank]) - LINE * 64) // size
        blocks = generator.integers(0, 256, (count, size)).astype(np.uint8)
        if extreme:
            blocks[generator.random(blocks.shape) < extreme] = 0x80
        if group:
            each = 128 // group * 64
            scales = values(seed + bank, (count, each // 2), extreme, False)
            blocks[:, 2048 : 2048 + each] = scales.view(np.uint8)
        rig.place(bank, LINE * 64, blocks)


def place_scales(rig: Rig, seed: int, n: int, extreme: float) -> np.ndarray:
    """FP32 scales in whole lines, FP16 bias behind them; returns the scales."""
    generator = np.random.default_rng(seed)
    scales = (generator.random(n) * np.exp2(generator.integers(-18, 2, n))).astype(np.float32)
    if extreme:
        special = np.array([np.inf, np.nan, 0, -1e-40, 3e38], np.float32)
        chosen = generator.random(n) < extreme
        scales[chosen] = generator.choice(special, int(chosen.sum()))
    rig.place(TABLES, 128, scales)
    rig.place(TABLES, 128 + -(-4 * n // 64) * 64, values(seed + 9, (n,), extreme, False))
    return scales


def run_matrix(rig: Rig, kind: int, group: int, x: np.ndarray, n: int, **fields: Any) -> Any:
    _rows, k = x.shape
    stride = -(-x.itemsize * k // 64) * 64 + 64
    rig.place_rows(ONCHIP, X, stride, x)
    log2 = group.bit_length() - 1 if group else 0
    return rig.run(
        "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=MERGE,
        weight_type=kind | log2 << abi.WEIGHT_GROUP_SHIFT, weight_line=LINE, first=FIRST,
        x_bank=ONCHIP, k=k, n=n, x_offset=X, x_stride=stride, y_stride=4 * n + 64, bias_line=2,
        **{"bias_bank": TABLES, "y_offset": Y, **fields},
    )  # fmt: skip


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    extreme=st.sampled_from([0.0, 0.01, 0.5]),
    shape=st.sampled_from([(INT8, 0), (W4A8, 32), (W4A8, 64), (W4A8, 128), (W4A16, 32),
                           (W4A16, 64), (W4A16, 128)]),
    k=st.integers(1, 700),
    n=st.integers(1, 80),
    rows=st.integers(1, 9),
    biased=st.booleans(),
    y_type=st.sampled_from([FP16, FP32]),
)  # fmt: skip
def test_matrix(
    variant: str, seed: int, extreme: float, shape: Any, k: int, n: int, rows: int, biased: bool,
    y_type: int,
) -> None:  # fmt: skip
    kind, group = shape
    k = -(-k // group) * group if group else k
    wide = kind == W4A16
    x = values(seed, (rows, k), extreme / 9, True) if wide else random_bytes(seed, rows, k)

    def build(rig: Rig) -> Any:
        rig.rows(rows + 3, selected=range(1, rows + 1))
        fill_weights(rig, seed, group, extreme / 50)
        place_scales(rig, seed + 5, n, extreme)
        fields = {"flags": SELECTED | (0 if biased or wide else NO_BIAS), "y_type": y_type}
        if wide and not biased:
            fields["bias_bank"] = kernel_rig.NO_BANK
        return run_matrix(rig, kind, group, x, n, **{"y_bank": ONCHIP, **fields})

    assert both(build).status == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12, 17, 29, 64])
@pytest.mark.parametrize(("kind", "group"), [(INT8, 0), (W4A8, 64)])
def test_matrix_row_counts(variant: str, rows: int, kind: int, group: int) -> None:
    x = random_bytes(rows, rows, 448, extreme=0.1)

    def build(rig: Rig) -> Any:
        rig.rows(rows)
        fill_weights(rig, 7, group, 0.0)
        place_scales(rig, 8, 96, 0.0)
        return run_matrix(rig, kind, group, x, 96, y_bank=ONCHIP, y_type=FP16)

    both(build)


@pytest.mark.parametrize("k", [1024, 1152, 2048])
@pytest.mark.parametrize("group", [0, 32, 64, 128])
def test_matrix_of_one_row_reads_blocks_side_by_side(variant: str, group: int, k: int) -> None:
    """Sums of the blocks keep the order of K, within a segment and over segments."""
    x = random_bytes(k + group, 1, k, extreme=0.1)

    def build(rig: Rig) -> Any:
        rig.rows(1)
        fill_weights(rig, k, group, 0.0)
        place_scales(rig, 3, 96, 0.0)
        kind = W4A8 if group else INT8
        return run_matrix(rig, kind, group, x, 96, y_bank=ONCHIP, y_type=FP32)

    both(build)


@pytest.mark.parametrize(("kind", "group"), [(INT8, 0), (W4A8, 64)])
@pytest.mark.parametrize("y_offset", [X - 64, X, X + 128, X + 256])
def test_matrix_whose_result_lies_over_its_row(
    variant: str, kind: int, group: int, y_offset: int
) -> None:
    """Whole blocks of a single row are read where they are, unless y covers some of them."""
    x = random_bytes(y_offset, 1, 256, extreme=0.1)

    def build(rig: Rig) -> Any:
        rig.rows(1)
        fill_weights(rig, 11, group, 0.0)
        place_scales(rig, 12, 160, 0.0)
        return run_matrix(rig, kind, group, x, 160, y_bank=ONCHIP, y_offset=y_offset, y_type=FP16)

    both(build)


@pytest.mark.parametrize("bytes_less", [0, 64, 4096, 1 << 16])
def test_a_matrix_ends_with_its_bank(variant: str, bytes_less: int) -> None:
    """Banks of just the blocks that a matrix has. Where one is shorter by a line, it is refused."""
    k, n, tiles = 256, 640, 20
    last = FIRST + (tiles * 2 - 1) // MERGE  # request
    statuses = []
    for runner in (kernel_rig.refusing_runner if bytes_less else kernel_rig.numpy_runner,
                   run_native):  # fmt: skip
        rig = Rig(runner=runner)
        rig.rows(1)
        fill_weights(rig, 13, 0, 0.0)
        place_scales(rig, 14, n, 0.0)
        for bank in range(WEIGHT_BANKS[1]):
            rows = (last - bank) // WEIGHT_BANKS[1] + 1
            end = LINE * 64 + rows * MERGE * 4096
            shorter = bytes_less if bank == last % WEIGHT_BANKS[1] else 0
            rig.banks[bank] = rig.banks[bank][: end - shorter]
        x = random_bytes(15, 1, k)
        statuses.append(run_matrix(rig, INT8, 0, x, n, y_bank=ONCHIP, y_type=FP16).status)
    assert statuses[1] == (abi.ERR_ADDRESS if bytes_less else 0)
    assert bytes_less or statuses[0] == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_are_exact(variant: str, sign: int) -> None:
    """All weights and activations at their ends, K as long as INT32 allows."""
    k = abi.MAX_INT8_K
    x = np.full((1, k), -128, np.int8)

    def build(rig: Rig) -> Any:
        rig.banks[0] = np.full(4096 * 1024 + 4096, 0x80 if sign > 0 else 0x7F, np.uint8)
        rig.banks[ONCHIP] = np.full(1 << 18, 0xFF, np.uint8)
        rig.rows(1)
        rig.place(TABLES, 128, np.ones(32, np.float32))
        rig.place(ONCHIP, 0, x)
        found = rig.run(
            "matrix", bank_count=1, merge=1, weight_type=INT8, flags=NO_BIAS, x_bank=ONCHIP,
            y_bank=CONTROL, k=k, n=32, y_stride=128, bias_line=2, bias_bank=TABLES, y_type=FP32,
        )  # fmt: skip
        weight = -128 if sign > 0 else 127
        y = rig.read_rows(CONTROL, 0, 128, (1, 32), np.float32)
        assert (y == np.float32(-128 * weight * k)).all()
        return found.status

    assert both(build) == 0


def test_int4_follows_the_contract() -> None:
    """A scalar spelling of W4A8, where segments cut groups: K of 96 in groups of 32 and 192 in
    groups of 64 have segments of one or two units."""
    for k, group in ((96, 32), (192, 64), (384, 128)):
        x = random_bytes(3, 1, k)
        rig = Rig(runner=run_native)
        rig.rows(1)
        fill_weights(rig, 11, group, 0.0)
        scales = place_scales(rig, 12, 32, 0.0)
        found = run_matrix(rig, W4A8, group, x, 32, flags=NO_BIAS, y_bank=CONTROL, y_type=FP32)
        assert found.status == 0
        y = rig.read_rows(CONTROL, Y, 4 * 32 + 64, (1, 32), np.float32)[0]
        for n in (0, 1, 17, 31):
            assert y[n] == scalar_int4(rig, x[0], group, n) * scales[n]


def scalar_int4(rig: Rig, x: np.ndarray, group: int, n: int) -> np.float32:
    parts = []
    for start, end in segment_bounds(len(x)):
        total, k = np.float32(0), start
        while k < end:
            until = min(end, (k // group + 1) * group)
            numbers = [read_int4(rig, i, group, n) for i in range(k, until)]
            zero, scale = numbers[0][1:]
            part = sum(q * int(x[k + i]) for i, (q, _, _) in enumerate(numbers))
            part -= zero * int(x[k:until].astype(int).sum())
            total = total + np.float32(part) * np.float32(scale)
            k = until
        parts.append(total)
    s = parts
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))


def read_int4(rig: Rig, k: int, group: int, n: int) -> tuple[int, int, np.float16]:
    """(q, zero, scale) of one weight of the first tile, as abi.h spells blocks."""
    request, size = FIRST + k // 128 // MERGE, BLOCK_BYTES[group]
    place = request // WEIGHT_BANKS[1] * MERGE + k // 128 % MERGE
    start = LINE * 64 + place * size
    block = rig.banks[WEIGHT_BANKS[0] + request % WEIGHT_BANKS[1]][start : start + size]
    k %= 128
    pair = int(block[k // 8 * 128 + n * 4 + k % 4])
    at = 2048 + (k // group * 32 + n) * 2
    zeros = int(block[2048 + 128 // group * 64 + (k // group * 32 + n) // 2])
    scale = block[at : at + 2].view(np.float16)[0]
    return pair & 15 if k % 8 < 4 else pair >> 4, zeros & 15 if n % 2 == 0 else zeros >> 4, scale


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight_type", 2), ("weight_type", 0x73), ("weight_type", 0x44), ("k", 96),
     ("bias_line", 1 << 20), ("bias_bank", 255), ("x_stride", 1 << 31), ("weight_line", 1 << 20)],
)  # fmt: skip
def test_a_bad_command_is_refused(field: str, value: int) -> None:
    rig = Rig(runner=run_native)
    rig.rows(2)
    fill_weights(rig, 1, 64, 0.0)
    good = {
        "bank_count": 3, "merge": 1, "weight_type": W4A8 | 6 << 4, "k": 128, "n": 40,
        "x_bank": ONCHIP, "y_bank": ONCHIP, "x_stride": 128, "y_offset": 4096, "y_stride": 128,
        "bias_bank": TABLES, "y_type": FP16, "weight_line": 3,
    }  # fmt: skip
    assert rig.run("matrix", **good).status == 0
    before = {bank: memory.copy() for bank, memory in rig.banks.items()}
    assert rig.run("matrix", **{**good, field: value}).status in {2, 4, 5}
    assert all((memory == before[bank]).all() for bank, memory in rig.banks.items())


def run_vector(rig: Rig, op: int, columns: int, **fields: Any) -> Any:
    return rig.run(
        "vector", op=op, columns=columns, x_offset=X, x_stride=STRIDE, y_bank=ONCHIP, y_offset=Y,
        y_stride=STRIDE, z_offset=Y + (1 << 18), z_stride=STRIDE, **fields,
    )  # fmt: skip


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(0, 300),
    extreme=st.sampled_from([0.0, 0.3]),
    inverse=st.sampled_from([1.0, 12.5, 0.0, 1e-3, 3e38, np.inf, np.nan, -7.0]),
)
def test_quantize(variant: str, seed: int, columns: int, extreme: float, inverse: float) -> None:
    x = values(seed, (3, columns), extreme, True)

    def build(rig: Rig) -> Any:
        rig.rows(3)
        rig.place_rows(ONCHIP, X, STRIDE, x)
        scalar = int(np.float32(inverse).view(np.uint32))
        return run_vector(rig, abi.VEC_QUANTIZE, columns, scalar=scalar)

    both(build)


def test_quantize_of_every_fp16_value(variant: str) -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(32, 2048)
    for inverse in (8.0, 0.3, 65504.0):

        def build(rig: Rig, inverse: float = inverse) -> Any:
            rig.rows(32)
            rig.place_rows(ONCHIP, X, STRIDE, every)
            scalar = int(np.float32(inverse).view(np.uint32))
            return run_vector(rig, abi.VEC_QUANTIZE, 2048, scalar=scalar)

        assert both(build).nonfinite_count == 2 * 1023


def test_halves_round_to_even(variant: str) -> None:
    rig = Rig(runner=run_native)
    rig.rows(1)
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, -200, 0.25], np.float16)
    rig.place(ONCHIP, X, x)
    run_vector(rig, abi.VEC_QUANTIZE, len(x), scalar=int(np.float32(1).view(np.uint32)))
    y = rig.read_rows(ONCHIP, Y, STRIDE, (1, len(x)), np.int8)[0]
    assert y.tolist() == [0, 2, 2, 0, -2, -2, 126, 127, -127, 0]


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    half=st.integers(1, 70),
    heads=st.integers(1, 5),
    extreme=st.sampled_from([0.0, 0.02, 0.5]),
    zero=st.booleans(),
)
def test_quantize_heads(
    variant: str, seed: int, half: int, heads: int, extreme: float, zero: bool
) -> None:
    x = values(seed, (3, heads * 2 * half), extreme, True)
    if zero:
        x[1, : 2 * half] = -0.0

    def build(rig: Rig) -> Any:
        rig.rows(3)
        rig.list.head_dim = 2 * half
        rig.place_rows(ONCHIP, X, STRIDE, x)
        return run_vector(rig, abi.VEC_QUANTIZE_HEADS, x.shape[1], extra=2 * half)

    both(build)


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 300),
    width=st.sampled_from([1, 2]),
    in_place=st.booleans(),
)
def test_permute(variant: str, seed: int, columns: int, width: int, in_place: bool) -> None:
    generator = np.random.default_rng(seed)
    order = generator.permutation(columns).astype(np.uint32)
    x = generator.integers(0, 256, (3, columns * width)).astype(np.uint8)

    def build(rig: Rig) -> Any:
        rig.rows(3)
        rig.place_rows(ONCHIP, X, STRIDE, x)
        rig.place(TABLES, 640, order)
        fields = {"y_offset": X} if in_place else {}
        found = rig.run(
            "vector", **{"op": abi.VEC_PERMUTE, "columns": columns, "x_offset": X, "a_line": 10,
                         "x_stride": STRIDE, "y_bank": ONCHIP, "y_offset": Y, "y_stride": STRIDE,
                         "a_bank": TABLES, "extra": width, **fields}
        )  # fmt: skip
        y = rig.read_rows(ONCHIP, X if in_place else Y, STRIDE, (3, columns), f"u{width}")
        assert (y == x.view(f"u{width}")[:, order]).all()
        return found

    both(build)


def test_an_index_beyond_the_row_is_refused() -> None:
    rig = Rig(runner=run_native)
    rig.rows(1)
    rig.place(TABLES, 640, np.array([0, 4, 1, 2], np.uint32))
    found = run_vector(rig, abi.VEC_PERMUTE, 4, extra=2, a_bank=TABLES, a_line=10)
    assert found.status == 2


class QuantizedAttention(Attention):
    """Pages of INT8 K and V, with a scale a position where `scales` says so."""

    def __init__(self, rig: Rig, head_dim: int, kv_heads: int, kind: int) -> None:
        super().__init__(rig, head_dim, kv_heads)
        rig.list.kv_type = kind
        self.lines = head_dim // 2 + (kind == abi.KV_INT8_HEADS)
        self.scaled = kind == abi.KV_INT8_HEADS

    def block(self, page: int, head: int, v: int) -> np.ndarray:
        header = self.rig.list
        stride = (header.kv_layers * self.kv_heads) * 2 | 1
        j = page * stride + (self.layer * self.kv_heads + head) * 2 + v
        start = (3 + j // header.kv_bank_count * self.lines) * 64
        bank = header.kv_bank_first + j % header.kv_bank_count
        return self.rig.banks[bank][start : start + self.lines * 64]

    def write(self, page: int, lane: int, k: Any, v: Any) -> None:
        """K and V (values INT8 [kv_heads, head_dim], scales FP16 [kv_heads]) of one position."""
        for head in range(self.kv_heads):
            for which, (numbers, scales) in enumerate((k, v)):
                block = self.block(page, head, which)
                cells = block[: 32 * self.head_dim].view(np.int8)
                if which:
                    cells.reshape(32, self.head_dim)[lane] = numbers[head]
                else:
                    cells.reshape(self.head_dim, 32)[:, lane] = numbers[head]
                if self.scaled:
                    block[32 * self.head_dim :].view(np.float16)[lane] = scales[head]


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([abi.KV_INT8, abi.KV_INT8_HEADS]),
    head_dim=st.sampled_from([2, 8, 32, 38, 64, 72, 128, 264]),
    committed=st.integers(0, 130),
    kv_heads=st.integers(1, 2),
    fresh=st.integers(1, 40),
    prompt=st.booleans(),
    ordered=st.booleans(),
    extreme=st.sampled_from([0.0, 0.02]),
    scale=st.sampled_from([1e-4, 3e-2, 0.0, np.inf, 3e38]),
    seen=SEEN,
)
@example(  # rows of a group whose windows begin in different tiles of the prompt
    seed=1, kind=abi.KV_INT8, head_dim=64, committed=12, kv_heads=1, fresh=40, prompt=True,
    ordered=True, extreme=0.0, scale=1e-4, seen=(9, 0, 0.0),
)  # fmt: skip
@example(  # heads so narrow that one's scores follow the other's at once, each with its slope
    seed=0, kind=abi.KV_INT8, head_dim=8, committed=40, kv_heads=2, fresh=40, prompt=True,
    ordered=True, extreme=0.0, scale=1e-4, seen=(0, 2, 0.0),
)  # fmt: skip
def test_attention(
    variant: str, seed: int, kind: int, head_dim: int, committed: int, kv_heads: int, fresh: int,
    prompt: bool, ordered: bool, extreme: float, scale: float, seen: Any,
) -> None:  # fmt: skip
    """A random tree of uncommitted rows on two sequences, or a prompt, whose rows each continue the
    one before; slots sharded at random, or in order."""
    generator = np.random.default_rng(seed)
    order = np.arange(64) if ordered else generator.permutation(64)
    slots = order[:fresh].tolist()
    numbers = random_bytes(seed, 2, committed + fresh, kv_heads, head_dim, extreme=extreme)
    scales = values(seed + 3, (2, committed + fresh, kv_heads), extreme, False)
    k, v = ([(numbers[i, p], scales[i, p]) for p in range(committed + fresh)] for i in (0, 1))
    q = random_bytes(seed + 1, fresh, 2 * kv_heads, head_dim)
    if kind == abi.KV_INT8_HEADS:
        q = values(seed + 1, q.shape, extreme, False)

    def build(rig: Rig) -> Any:
        choose = np.random.default_rng(seed + 2)
        tool = QuantizedAttention(rig, head_dim, kv_heads, kind)
        tool.commit(0, k[:committed], v[:committed])
        tool.commit(5, k[: committed // 2], v[: committed // 2])
        for i, slot in enumerate(slots):
            sequence, parent, position = (0, -1, committed)
            before = i - 1 if prompt else int(choose.integers(-1, i)) if i else -1
            if before >= 0:
                entry = rig.state.slots[slots[before]]
                sequence, parent, position = entry.sequence, slots[before], entry.position + 1
            elif not prompt and choose.random() < 0.3:
                sequence, position = 5, committed // 2
            tool.slot(slot, sequence, parent, position, k[committed + i], v[committed + i])
            tool.row(i, sequence, slot)
        rig.rows(fresh)
        rig.place_rows(ONCHIP, X, STRIDE, q.reshape(fresh, -1))
        return rig.run(
            "attention", head_dim=head_dim, kv_layer=tool.layer, q_heads=2 * kv_heads, q_first=4,
            kv_heads=kv_heads, kv_first=2, group=2, q_offset=X, q_stride=STRIDE, y_offset=Y,
            y_stride=STRIDE, scale=int(np.float32(scale).view(np.uint32)),
            v_scale=int(np.float32(0.02).view(np.uint32)), **seen_fields(tool, seen, 2 * kv_heads),
        )  # fmt: skip

    assert both(build).status == 0


def test_int8_attention_follows_the_contract(variant: str) -> None:
    head_dim, positions = 64, 45
    rig = Rig(runner=run_native)
    tool = QuantizedAttention(rig, head_dim, 1, abi.KV_INT8)
    numbers = random_bytes(3, 2, positions, 1, head_dim)
    k, v = ([(numbers[i, p], None) for p in range(positions)] for i in (0, 1))
    tool.commit(0, k[:-1], v[:-1])
    tool.slot(7, 0, -1, positions - 1, k[-1], v[-1])
    tool.row(0, 0, 7)
    rig.rows(1)
    q = random_bytes(5, head_dim)
    rig.place(ONCHIP, X, q)
    scale, v_scale = np.float32(2e-4), np.float32(0.013)
    found = rig.run(
        "attention", head_dim=head_dim, kv_layer=tool.layer, q_heads=1, kv_heads=1, group=1,
        q_offset=X, q_stride=STRIDE, y_offset=Y, y_stride=STRIDE, scale=int(scale.view(np.uint32)),
        v_scale=int(v_scale.view(np.uint32)),
    )  # fmt: skip
    assert found.status == 0
    wide = numbers[:, :, 0].astype(np.int64)
    s = (wide[0] @ q.astype(np.int64)).astype(np.float32) * scale
    e = np.rint(np.float32(127) * exp32(s - s.max())).astype(np.int64)
    wanted = ((e @ wide[1]).astype(np.float32) / np.float32(e.sum())) * v_scale
    y = rig.read_rows(ONCHIP, Y, STRIDE, (1, head_dim), np.float16)[0]
    assert y.tobytes() == wanted.astype(np.float16).tobytes()


def test_extremes_are_among_the_values() -> None:
    """The list that `values` draws from holds what quantizing treats apart."""
    assert np.isnan(EXTREMES).any() and np.isinf(EXTREMES).any() and (EXTREMES == 0).any()
