"""The same promise for quantized models: logits are the same bytes over boards, step grouping,
batches, trees, adapters and kernels in every scheme, equal to an independent implementation."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.emu import attention_int8, integer, kv_pages, quantize
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.compile import kv_quantize, matmul
from lora_sdk.compile.isa import float_bits
from lora_sdk.plan.adapters import AdapterOptions
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import digest, fails, tokens_of, verify_tree
from tests.oracle.integer import AdaptedQuantized
from tests.quantized import SCHEMES, QuantizedModel
from tests.variants import variant, write_checkpoint

DIGESTS = Path(__file__).parent / "quantized_identity.json"
LENGTH = 75  # beyond two tiles, no multiple of 32
# K of a model's products is, or is not, a multiple of a scheme's groups; heads are shared or not
NAMES = ("gpt2", "opt_post_norm", "llama_linear", "llama_gqa_bias", "llama_narrow")
KERNELS = ("numpy", "native")
# the package exports functions of these names
matrix = importlib.import_module("lora_host.emu.matrix")
vector = importlib.import_module("lora_host.emu.vector")

Made = tuple[Path, QuantizedModel, Logits]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Made]:
    """A model's folder, the model in a scheme, and its logits."""
    root = tmp_path_factory.mktemp("quantized")
    known: dict[tuple[str, str], Made] = {}

    def of(name: str, scheme: str) -> Made:
        if (name, scheme) not in known:
            folder = root / name
            if not folder.exists():
                write_checkpoint(variant(name), folder)
            model = QuantizedModel(folder, SCHEMES[scheme])
            want = model.oracle().logits(tokens_of(name, LENGTH))
            known[name, scheme] = folder, model, want
        return known[name, scheme]

    return of


def same_bytes(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    """Compared outside an assertion: where it fails, explaining long bytes takes minutes."""
    return got.tobytes() == want.tobytes()


def check(found: Made, name: str, boards: int, cuts: tuple[int, ...], kernels: str) -> None:
    folder, model, want = found
    with open_runner(folder, boards, kernels=kernels, sequences=1, model=model) as runner:
        got = Driver(runner).feed(0, tokens_of(name, LENGTH), cuts)
    assert same_bytes(got, want)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_independent_implementation_has_the_committed_digest(
    scheme: str, made: Callable[[str, str], Made]
) -> None:
    want = made("gpt2", scheme)[2]
    assert digest(want) == json.loads(DIGESTS.read_text())[scheme]


def some(fast: tuple[str, ...]) -> list[Any]:
    """All schemes, those not in `fast` as slow tests."""
    return [s if s in fast else pytest.param(s, marks=pytest.mark.slow) for s in SCHEMES]


STATIC = tuple(name for name, scheme in SCHEMES.items() if not scheme.dynamic)


@pytest.mark.parametrize("scheme", some(STATIC))
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("name", "boards"), [("llama_linear", 2), ("gpt2", 4)])
def test_prefill_and_decode(
    name: str, boards: int, kernels: str, scheme: str, made: Callable[[str, str], Made]
) -> None:
    check(made(name, scheme), name, boards, (37, 1, 5, 1), kernels)


@pytest.mark.parametrize("scheme", some((*STATIC, "w8a8_dynamic")))
@pytest.mark.parametrize(("name", "boards"), [("llama_gqa_bias", 1), ("opt_post_norm", 8)])
def test_other_shapes_on_one_and_eight_boards(
    name: str, boards: int, scheme: str, made: Callable[[str, str], Made]
) -> None:
    check(made(name, scheme), name, boards, (64,), "native")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", STATIC)
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_all_of_them(
    name: str, boards: int, kernels: str, scheme: str, made: Callable[[str, str], Made]
) -> None:
    for cuts in ((64,), (1, 37, 5, 2)):
        check(made(name, scheme), name, boards, cuts, kernels)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["w8a8_dynamic", "w4a8_dynamic"])
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_dynamic_scales_over_boards(
    name: str, boards: int, scheme: str, made: Callable[[str, str], Made]
) -> None:
    check(made(name, scheme), name, boards, (1, 37, 5, 2), "native")


@pytest.mark.parametrize("scheme", some(("w8a8", "w8a8_heads", "w4a8", "w4a16_order")))
def test_batches_and_their_order(scheme: str, made: Callable[[str, str], Made]) -> None:
    """Three sequences interleaved row by row, then in different orders."""
    name = "llama_linear"
    folder, model, want = made(name, scheme)
    full = tokens_of(name, LENGTH)
    starts = {2: full[:34], 0: full[:13], 1: full[:11]}
    with open_runner(folder, 2, sequences=3, model=model) as runner:
        driver = Driver(runner)
        got = driver.step(starts, interleave=True)
        for number, tokens in starts.items():
            assert got[number].tobytes() == want[: len(tokens)].tobytes()
        for turn, order in enumerate([(0, 1, 2), (2, 1, 0)]):
            at = {n: len(starts[n]) + turn for n in order}
            got = driver.step({n: [full[at[n]]] for n in order})
            for n in order:
                assert got[n].tobytes() == want[at[n] : at[n] + 1].tobytes()


@pytest.mark.parametrize("scheme", some(("w8a8", "w4a8", "kv_heads")))
@pytest.mark.parametrize("kernels", KERNELS)
def test_siblings_and_commit_of_one_path(
    scheme: str, kernels: str, made: Callable[[str, str], Made]
) -> None:
    """INT8 keys and values of a hidden branch, over a tile's edge, and after its commit."""
    name = "llama_linear"
    folder, model, want = made(name, scheme)
    with open_runner(folder, 2, kernels=kernels, sequences=1, model=model) as runner:
        verify_tree(runner, tokens_of(name, LENGTH), want, 61)


ADAPTER = Folder("plain", rank=12, config={"use_rslora": True, "lora_alpha": 8})


@pytest.mark.parametrize("mode", ["auto", "s"])
@pytest.mark.parametrize("scheme", some(("w8a8", "w8a8_dynamic", "w4a8_order", "w4a16")))
def test_adapters_read_the_fp16_activation(
    scheme: str, mode: str, tmp_path: Path, made: Callable[[str, str], Made]
) -> None:
    """Rows with and without an adapter in one step; the links carry FP16 then."""
    name, boards = "gpt2", 2
    folder, model, plain = made(name, scheme)
    path = write_adapter(variant(name), ADAPTER, tmp_path / "adapter")
    oracle = AdaptedQuantized(model.oracle(), read_factors(variant(name), path))
    tokens = tokens_of(name, LENGTH)[:12]
    want = oracle.logits(tokens)
    assert want.tobytes() != plain[:12].tobytes()
    options = AdapterOptions(2, 16, mode)
    with open_runner(folder, boards, sequences=2, model=model, adapters=options) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        held.load("plain", path)
        held.attach(0, "plain")
        driver = Driver(runner)
        driver.adapters[0] = held.slot_of(0)
        got = driver.step({0: tokens, 1: tokens}, interleave=True)
    assert same_bytes(got[0], want)
    assert same_bytes(got[1], plain[:12])


def test_links_carry_int8_where_products_read_it(made: Callable[[str, str], Made]) -> None:
    """About half of FP16's bytes (norm sums stay), and those that the plan counts."""
    name = "llama_linear"
    folder, model, _ = made(name, "w8a8")
    with open_runner(folder, 2, model=model) as runner:
        eight = runner.plan.link_bytes(32, 32)
        emulated = runner.cluster.emulated
        assert emulated is not None
        before = {port: emulated.link_bytes(*port) for port in eight}
        Driver(runner).step({0: tokens_of(name, 32)})
        for port, sent in eight.items():
            frames, payload = emulated.link_bytes(*port)
            assert frames - before[port][0] == sent.frames
            assert payload - before[port][1] == sent.payload
    with open_runner(folder, 2) as runner:
        whole = runner.plan.link_bytes(32, 32)
    for port, sent in eight.items():
        assert 0.4 < sent.payload / whole[port].payload < 0.65


# What must be noticed: each changes one rule of the NumPy model, or a constant of the list.

Patch = Callable[[pytest.MonkeyPatch], None]


def _rounds_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quantize, "np", SimpleNamespace(**(vars(np) | {"rint": np.floor})))


def _zero_points_forgotten(patch: pytest.MonkeyPatch) -> None:
    for module in (integer, matrix):
        patch.setattr(
            module, "int4_weights", functools.partial(_without_zeros, module.int4_weights)
        )


def _without_zeros(read: Any, *arguments: Any) -> Any:
    values, scales, zeros = read(*arguments)
    return values, scales, np.zeros_like(zeros)


def _scale_of_the_neighbour(patch: pytest.MonkeyPatch) -> None:
    scales = matrix.column_scales
    patch.setattr(matrix, "column_scales", lambda *a: np.roll(scales(*a), 1))


def _e8_of_128(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attention_int8, "_INT8_MAX", np.float32(128))


def _next_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kv_quantize, "float_bits", lambda value: float_bits(value) + 1)


def _scales_of_values(patch: pytest.MonkeyPatch) -> None:
    """Keys by the values' scales and the other way round."""
    locate, wide = kv_pages._block_location, kv_pages._wide_block

    def other(call: Any, page: int, head: int, values: bool) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            block = kv_pages.kv_block(call, page, head, values)
            inner.setattr(kv_pages, "kv_block", lambda *_: block)
            inner.setattr(
                kv_pages, "_block_location", lambda c, p, h, v, *at: locate(c, p, h, not v, *at)
            )
            return wide(call, page, head, values)

    patch.setattr(kv_pages, "_wide_block", other)


def _half_of_the_order(patch: pytest.MonkeyPatch) -> None:
    permute = matmul._permute

    def half(part: Any, *arguments: Any) -> Any:
        event = permute(part, *arguments)
        commands = part.builder.commands
        commands[-1] = replace(commands[-1], columns=commands[-1].columns // 2)
        return event

    patch.setattr(matmul, "_permute", half)


def _max_of_own_columns(patch: pytest.MonkeyPatch) -> None:
    """Each board quantizes by the max of its own share of the row."""

    def own(call: Any) -> None:
        c = call.command
        x = call.rows_view(abi.BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
        largest = quantize._max_magnitude(x.astype(np.float32))
        quantize._row_scales(call)["maxima"][:, : c.extra] = largest[:, None]
        quantize.quantize_row(call)

    patch.setitem(vector.OPERATIONS, abi.VEC_QUANTIZE_ROW, own)


def _scale_of_the_next_row(patch: pytest.MonkeyPatch) -> None:
    scales = matrix.row_scales
    patch.setattr(matrix, "row_scales", lambda call: np.roll(scales(call), 1, axis=0))


MISTAKES: dict[str, tuple[Patch, str]] = {
    "quantizing rounds down": (_rounds_down, "w8a8_mixed"),
    "zero points are forgotten": (_zero_points_forgotten, "w4a8"),
    "w4a16 without zero points": (_zero_points_forgotten, "w4a16"),
    "a neighbour's scale": (_scale_of_the_neighbour, "w8a8"),
    "e8 of 128": (_e8_of_128, "kv_int8"),
    "attention's scale off by one bit": (_next_scale, "kv_int8"),
    "scales of another block": (_scales_of_values, "kv_heads"),
    "half of the order": (_half_of_the_order, "w4a8_order"),
    "the scale of the next row": (_scale_of_the_next_row, "w4a8_dynamic"),
}


@pytest.mark.parametrize(("patch", "scheme"), MISTAKES.values(), ids=MISTAKES)
def test_notices(
    patch: Patch, scheme: str, made: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made("gpt2", scheme)
    check(found, "gpt2", 1, (64,), "numpy")
    patch(monkeypatch)
    assert fails(lambda: check(found, "gpt2", 1, (64,), "numpy"))


def test_notices_the_max_of_a_share(
    made: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made("llama_linear", "w8a8_dynamic")
    check(found, "llama_linear", 2, (64,), "numpy")
    _max_of_own_columns(monkeypatch)
    check(found, "llama_linear", 1, (64,), "numpy")
    assert fails(lambda: check(found, "llama_linear", 2, (64,), "numpy"))
