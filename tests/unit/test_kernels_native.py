"""Every native variant against the NumPy model, bit for bit, on random and extreme inputs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import native, rtl
from tests import kernel_option
from tests.unit import kernel_rig
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, SELECTED, TABLES, Rig
from tests.unit.test_kernels_attention import Attention
from tests.unit.test_kernels_matrix import FP16, FP32, run_matrix
from tests.unit.test_kernels_vector import STRIDE, X, Y, Z, bits, place_table, run_vector

EXTREMES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01,
     0x7C01, 0x3C00, 0xBC00, 0x4800, 0xC800, 0x47FF, 0xC7FF, 0xC801],
    np.uint16,
).view(np.float16)  # fmt: skip
EXECUTED: set[str] = set()
AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
NEEDED: dict[str, set[str]] = {  # instruction sets, as /proc/cpuinfo names them
    "plain": set(),
    "avx2": AVX2,
    "avx2-vnni": AVX2 | {"avx_vnni"},  # as avx2 here: the integer loops differ
    "avx512": AVX512,
    "avx512-vnni": AVX512 | {"avx512_vnni"},
}
EVERY = list(NEEDED)
FEW = settings(max_examples=25, deadline=None)


def variants() -> list[tuple[str, bool]]:
    """(name, whether this machine runs it) of every variant in the library."""
    lib, ffi = native.lib(), native.ffi()
    found = []
    while name := lib.lora_native_variant(len(found)):
        found.append((ffi.string(name).decode(), bool(lib.lora_native_supported(len(found)))))
    return found


def run_native(name: str, call: Any) -> int:
    """The native kernels, or what `--kernels` names."""
    table = native.lib().lora_kernels_native
    if kernel_option.chosen == "rtl":
        table = rtl.kernel_table()
    return int(getattr(table, name)(table.context, call))


def cpu_flags() -> set[str]:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.split(":")[1].split())
    return set()


@cache
def machine_variants() -> tuple[str, ...]:
    """What this machine can run by its own word, not the library's."""
    if platform.machine() != "x86_64":
        return ("plain",)
    flags = cpu_flags()
    return tuple(name for name, needed in NEEDED.items() if needed <= flags)


def test_the_library_runs_what_the_machine_has() -> None:
    names = [name for name, _ in variants()]
    assert names == (EVERY if platform.machine() == "x86_64" else ["plain"])
    assert [name for name, supported in variants() if supported] == list(machine_variants())
    assert native.lib().lora_native_force(b"no such variant") == -1


def values(seed: int, shape: tuple[int, ...], extreme: float, wide: bool) -> np.ndarray:
    """FP16 of moderate or wide exponents, a share of them from the list of extremes."""
    generator = np.random.default_rng(seed)
    exponents = generator.integers(-14, 12, shape) if wide else generator.integers(-4, 2, shape)
    x = (generator.standard_normal(shape) * np.exp2(exponents)).astype(np.float16)
    chosen = generator.random(shape) < extreme
    x[chosen] = generator.choice(EXTREMES, int(chosen.sum()))
    return x


# window, kind of ALiBi, soft cap
SEEN = st.tuples(
    st.sampled_from([0, 0, 1, 9, 33, 64, 100]), st.integers(0, 2), st.sampled_from([0.0, 0.0, 1.7])
)


def seen_fields(tool: Attention, seen: tuple[int, int, float], heads: int) -> dict[str, int]:
    """Attention's fields of a window, of slopes and of a soft cap."""
    table = [(0.8 / (head + 1), 0.3) for head in range(heads)]
    cap = int(np.float32(seen[2]).view(np.uint32))
    return {**tool.slopes(table), "window": seen[0], "slope_kind": seen[1], "cap": cap}


KINDS = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.002, 0.3]), st.booleans())


@contextmanager
def forced(variant: str) -> Iterator[None]:
    """Kernels of one variant; AssertionError where the machine cannot run it."""
    lib, ffi = native.lib(), native.ffi()
    assert lib.lora_native_force(variant.encode()) == 0, f"{variant} was not run"
    assert ffi.string(lib.lora_native_current()).decode() == variant
    try:
        yield
    finally:
        lib.lora_native_force(ffi.NULL)


def same_memory(rig: Rig, wanted: Rig) -> None:
    for bank in wanted.banks:
        different = np.flatnonzero(wanted.banks[bank] != rig.banks[bank])
        assert different.size == 0, f"bank {bank}, first byte {different[0]:#x}"


def both(build: Any) -> None:
    """Runs `build` on a rig of the model and on one of every variant that the machine has, and
    compares memory and counts."""
    wanted = Rig(runner=kernel_rig.numpy_runner, bank_bytes=1 << 20)
    found = build(wanted)
    executed = []
    for variant in machine_variants():
        with forced(variant):
            rig = Rig(runner=run_native, bank_bytes=1 << 20)
            assert build(rig) == found, variant
            same_memory(rig, wanted)
        executed.append(variant)
    assert executed == [name for name, supported in variants() if supported], executed
    EXECUTED.update(executed)


@FEW
@given(
    kind=KINDS,
    k=st.integers(1, 700),
    n=st.integers(1, 230),
    rows=st.integers(1, 26),
    biased=st.booleans(),
    y_type=st.sampled_from([FP16, FP32]),
)
def test_matrix(kind: Any, k: int, n: int, rows: int, biased: bool, y_type: int):
    seed, extreme, wide = kind
    x, w = values(seed, (rows, k), extreme, wide), values(seed + 1, (k, n), extreme / 9, wide)
    bias = values(seed + 2, (n,), extreme, wide) if biased else None

    def build(rig: Rig) -> Any:
        rig.rows(rows + 3, selected=range(1, rows + 1))
        return run_matrix(rig, x, w, bias, y_type, SELECTED)[1]

    both(build)


@pytest.mark.parametrize("k", [416, 1180])  # segments of one or two, of four or five units
@pytest.mark.parametrize("rows", [*range(1, 14), 17, 24, 35, 64])
def test_matrix_row_counts(rows: int, k: int) -> None:
    x, w = values(rows, (rows, k), 0, True), values(2, (k, 96), 0, False)

    def build(rig: Rig) -> Any:
        rig.rows(rows)
        return run_matrix(rig, x, w)[1]

    both(build)


@pytest.mark.parametrize("extreme", [0.0, 0.002])
@pytest.mark.parametrize("k", [416, 1180, 4096, 4097])
def test_matrix_of_one_row_past_a_megabyte(k: int, extreme: int) -> None:
    """Loops for weights from memory, rounds of items: what shorter products do without. Of a row
    longer than 4096 threads share the FP32 values."""
    x, w = values(1, (1, k), extreme, True), values(2, (k, 1_100_000 // k), extreme, False)

    def build(rig: Rig) -> Any:
        rig.rows(1)
        return run_matrix(rig, x, w)[1]

    both(build)


@pytest.mark.parametrize("y_offset", [64, 64 + 1180, 64 + 2 * 1180 - 2])
def test_matrix_whose_result_lies_over_its_row(y_offset: int) -> None:
    """A later item still finds x as it was."""
    k = 1180
    x, w = values(1, (1, k), 0, True), values(2, (k, 1_100_000 // k), 0, False)

    def build(rig: Rig) -> Any:
        rig.rows(1)
        return run_matrix(rig, x, w, y_type=FP16, y_offset=y_offset)[1]

    both(build)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 14])
@pytest.mark.parametrize("units", range(1, 10))
def test_matrix_segments_without_columns(units: int, rows: int) -> None:
    k = 32 * units - 5
    x, w = values(units, (rows, k), 0, True), values(2, (k, 64), 0, False)

    def build(rig: Rig) -> Any:
        rig.rows(rows)
        return run_matrix(rig, x, w)[1]

    both(build)


@FEW
@given(kind=KINDS, op=st.sampled_from([8, 9, 10, 11, 12, 21, 24]), columns=st.integers(1, 1300))
def test_elementwise(kind: Any, op: int, columns: int) -> None:
    seed, extreme, wide = kind

    def build(rig: Rig) -> Any:
        rig.rows(2)
        rig.place_rows(ONCHIP, X, STRIDE, values(seed, (2, columns), extreme, wide))
        rig.place_rows(ONCHIP, Z, STRIDE, values(seed + 1, (2, columns), extreme, wide))
        return run_vector(rig, op, columns)

    both(build)


@pytest.mark.parametrize("op", [8, 9, 10, 12])
@pytest.mark.parametrize("over", [Y, Z])
@pytest.mark.parametrize("by", [-1030, -2, 0, 2, 1030])
def test_elementwise_result_over_an_operand(op: int, over: int, by: int) -> None:
    """Long rows are done piece by piece, unless a piece of y would be written over later x or z."""
    columns, stride = 1300, 4096
    strides = dict.fromkeys(("x_stride", "y_stride", "z_stride"), stride)

    def build(rig: Rig) -> Any:
        rig.rows(1)
        rig.place_rows(ONCHIP, Y, stride, values(op, (1, columns), 0.0, True))
        rig.place_rows(ONCHIP, Z, stride, values(op + 1, (1, columns), 0.0, True))
        return run_vector(rig, op, columns, x_offset=Y, y_offset=over + by, **strides)

    both(build)


@pytest.mark.parametrize("rows", [4, 64])  # GELU by chords, and by a table
@pytest.mark.parametrize("op", [9, 10, 11, 12])
def test_activations_of_every_fp16_value(op: int, rows: int) -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(rows, -1)
    strides = dict.fromkeys(("x_stride", "y_stride", "z_stride"), every[0].nbytes)

    def build(rig: Rig) -> Any:
        rig.rows(rows)
        rig.place_rows(ONCHIP, 0, every[0].nbytes, every)
        rig.place_rows(ONCHIP, Z, every[0].nbytes, np.ones_like(every))
        return run_vector(rig, op, every.shape[1], x_offset=0, **strides)

    both(build)


@FEW
@given(kind=KINDS, columns=st.integers(1, 700), rms=st.booleans(), affine=st.booleans())
def test_norm(kind: Any, columns: int, rms: bool, affine: bool) -> None:
    seed, extreme, wide = kind
    bank = TABLES if affine else NO_BANK

    def build(rig: Rig) -> Any:
        rig.rows(3)
        rig.place_rows(ONCHIP, X, STRIDE, values(seed, (3, columns), extreme / 20, wide))
        rig.place(TABLES, 640, values(seed + 1, (columns,), extreme / 20, False))
        rig.place(TABLES, 6400, values(seed + 2, (columns,), extreme / 20, False))
        first = run_vector(rig, 4 if rms else 3, columns, extra=columns)
        fields = {"extra": columns, "scalar": bits(1e-5), "a_bank": bank, "a_line": 10,
                  "b_bank": bank, "b_line": 100}  # fmt: skip
        return first, run_vector(rig, 6 if rms else 5, columns, **fields)

    both(build)


@FEW
@given(kind=KINDS, half=st.integers(1, 64), heads=st.integers(1, 4))
def test_embed_and_rope(kind: Any, half: int, heads: int) -> None:
    seed, extreme, wide = kind
    columns = 2 * half * heads

    def build(rig: Rig) -> Any:
        rig.rows(3)
        rig.state.block_offset = 4096
        place_table(rig, 64, values(seed, (30, columns), extreme, wide))
        place_table(rig, 64 * 1000, values(seed + 1, (30, columns), extreme, wide))
        angles = np.random.default_rng(seed).standard_normal((30, 2 * half)).astype(np.float32)
        place_table(rig, 64 * 4000, angles)
        rig.place(CONTROL, 4096 + 64, values(seed + 3, (columns + 8,), extreme, wide))
        for i, (token, position) in enumerate([(3, 0), (29, 27), (64, 9)]):
            rig.state.rows[i].token, rig.state.rows[i].position = token, position
        rig.state.rows[2].flags = 0x8
        tables = {"a_bank": TABLES, "b_bank": TABLES, "b_line": 1000, "extra": 2}
        first = run_vector(rig, 1, columns, a_line=1, first=4, **tables)
        second = run_vector(rig, 2, columns, x_offset=Y, **tables)
        third = run_vector(rig, 7, columns, x_offset=Y, a_bank=TABLES, a_line=4000, extra=2 * half)
        return first, second, third

    both(build)


@FEW
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(0, 700), nan=st.booleans())
def test_argmax(seed: int, columns: int, nan: bool) -> None:
    x = np.random.default_rng(seed).integers(-3, 3, (4, columns)).astype(np.float32)
    x[3].sort()
    if nan and columns:
        x[1, seed % columns] = np.nan
        x[2, seed % columns] = np.inf

    def build(rig: Rig) -> Any:
        rig.rows(9, selected=[1, 4, 5, 6])
        rig.place_rows(CONTROL, X, STRIDE, x)
        return run_vector(rig, 13, columns, flags=SELECTED, y_bank=CONTROL, y_stride=8, first=77)

    both(build)


@FEW
@given(
    kind=KINDS,
    head_dim=st.sampled_from([8, 32, 40, 64, 72, 128, 264]),
    committed=st.integers(0, 130),
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 2, 4, 7]),
    fresh=st.one_of(st.just(1), st.integers(1, 40)),
    seen=SEEN,
)
def test_attention(
    kind: Any, head_dim: int, committed: int, kv_heads: int, group: int, fresh: int, seen: Any
) -> None:
    """A random tree of uncommitted rows on two sequences, slots sharded at random. Heads of one KV
    head are read together, also those of a row alone."""
    seed, extreme, wide = kind
    group = min(group, STRIDE // (2 * kv_heads * head_dim))
    generator = np.random.default_rng(seed)
    slots = generator.permutation(64)[:fresh].tolist()
    kv = values(seed, (2, committed + fresh, kv_heads, head_dim), extreme / 50, wide)
    heads = group * kv_heads
    q = values(seed + 1, (fresh, heads, head_dim), extreme / 50, wide)

    def build(rig: Rig) -> Any:
        choose = np.random.default_rng(seed + 2)
        tool = Attention(rig, head_dim, kv_heads)
        tool.commit(0, *kv[:, :committed])
        tool.commit(5, *kv[:, : committed // 2])
        for i, slot in enumerate(slots):
            sequence, parent, position = (0, -1, committed)
            before = int(choose.integers(-1, i)) if i else -1
            if before >= 0:
                entry = rig.state.slots[slots[before]]
                sequence, parent, position = entry.sequence, slots[before], entry.position + 1
            elif choose.random() < 0.3:
                sequence, position = 5, committed // 2
            tool.slot(slot, sequence, parent, position, *kv[:, committed + i])
            tool.row(i, sequence, slot)
        rig.rows(fresh)
        fields = seen_fields(tool, seen, heads)
        return tool.run(q, 0.21, group=group, q_first=2 * group, kv_first=2, **fields)[1]

    both(build)


@FEW
@given(
    kind=KINDS,
    head_dim=st.sampled_from([8, 32, 40, 64, 128]),
    committed=st.integers(0, 90),
    fresh=st.integers(2, 64),
    ordered=st.booleans(),
    seen=SEEN,
)
def test_attention_of_a_prompt(
    kind: Any, head_dim: int, committed: int, fresh: int, ordered: bool, seen: Any
) -> None:
    """Each row continues the one before; values that a row may not see are not finite at times."""
    seed, extreme, wide = kind
    generator = np.random.default_rng(seed)
    slots = list(range(fresh)) if ordered else generator.permutation(64)[:fresh].tolist()
    kv = values(seed, (2, committed + fresh, 1, head_dim), 0, wide)
    late = kv[1, committed + fresh // 2 :]
    late[generator.random(late.shape) < extreme / 9] = np.inf
    q = values(seed + 1, (fresh, 2, head_dim), 0, wide)

    def build(rig: Rig) -> Any:
        tool = Attention(rig, head_dim, 1)
        tool.commit(3, *kv[:, :committed])
        for i, slot in enumerate(slots):
            parent = slots[i - 1] if i else -1
            tool.slot(slot, 3, parent, committed + i, *kv[:, committed + i])
            tool.row(i, 3, slot)
        rig.rows(fresh)
        fields = seen_fields(tool, seen, 2)
        return tool.run(q, 0.21, group=2, q_first=4, kv_first=2, **fields)[1]

    both(build)


def test_the_variants_that_ran(capsys: pytest.CaptureFixture[str]) -> None:
    """Lists them; every comparison above fails where one that the machine has was left out."""
    test_elementwise()
    with capsys.disabled():
        print(f"\nnative kernels held against the NumPy model: {', '.join(sorted(EXECUTED))}")
    assert set(machine_variants()) == EXECUTED


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["matrix", "vector", "attention"]), st.binary(min_size=52, max_size=52))
def test_any_command_is_run_or_refused(name: str, body: bytes) -> None:
    """Bytes of any kind after the head: a status, no access outside the banks."""
    rig = Rig(runner=run_native, bank_bytes=1 << 14)
    rig.rows(2)
    rig.list.kv_bank_count, rig.list.head_dim, rig.list.max_tiles = 3, 8, 4
    command = rig.ffi.new(f"struct lora_{name} *")
    rig.ffi.buffer(command)[12:] = body
    fields = {key: getattr(command, key) for key, _ in rig.ffi.typeof(command).item.fields}
    if name == "vector":
        fields["op"] = 1 + fields["op"] % 17
    assert rig.run(name, **plain_fields(fields)).status in {0, 2, 4, 5, 9, 65}


def plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if isinstance(value, int)}


@pytest.mark.parametrize("op", [3, 4])  # sums of LayerNorm, of RMSNorm
def test_sums_of_columns_without_a_whole_segment(op: int) -> None:
    """The last of eight segments of nine units has two; half of it is here."""

    def build(rig: Rig) -> Any:
        rig.rows(2)
        rig.place_rows(ONCHIP, X, STRIDE, values(1, (2, 32), 0.0, False))
        return run_vector(rig, op, 32, extra=288, first=224)

    both(build)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("matrix", "weight_line", 1 << 20), ("matrix", "bias_bank", 9), ("matrix", "x_offset", 1),
     ("matrix", "x_bank", 40), ("matrix", "y_stride", 1 << 30), ("matrix", "k", 1 << 25),
     ("matrix", "merge", 0), ("matrix", "bank_first", 60)],
)  # fmt: skip
def test_a_bad_matrix_command_is_refused(name: str, field: str, value: int) -> None:
    rig = Rig(runner=run_native)
    rig.rows(2)
    good = {
        "bank_count": 3, "merge": 2, "weight_type": FP16, "k": 64, "n": 40, "x_bank": ONCHIP,
        "y_bank": ONCHIP, "x_stride": 128, "y_offset": 4096, "y_stride": 128, "bias_bank": NO_BANK,
        "y_type": FP16,
    }  # fmt: skip
    assert rig.run(name, **good).status == 0
    before = {bank: memory.copy() for bank, memory in rig.banks.items()}
    assert rig.run(name, **{**good, field: value}).status in {2, 5}
    assert all((memory == before[bank]).all() for bank, memory in rig.banks.items())
