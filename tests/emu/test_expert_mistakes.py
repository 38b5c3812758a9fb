"""Planted mistakes in the NumPy kernels of mixtures of experts and of latent attention: the bytes
are no longer the oracle's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lora_host import abi
from lora_host.emu import mixture
from lora_host.emu.vector import OPERATIONS
from lora_host.numerics import F32
from lora_sdk.compile.isa import float_bits
from tests.drive import Driver, Logits, open_runner
from tests.parity.score import first_tokens
from tests.variants import variant

LENGTH = 9  # tokens


def another_expert(patch: pytest.MonkeyPatch) -> None:
    """The matrices of the expert behind the one that a row has chosen."""
    own = mixture._of_expert
    patch.setattr(mixture, "_of_expert", lambda call, e: own(call, (e + 1) % call.command.experts))


def skipped(patch: pytest.MonkeyPatch) -> None:
    """One expert's outputs are zeros."""
    own = mixture._products

    def products(call, expert, x):  # type: ignore[no-untyped-def]
        for start, found in own(call, expert, x):
            yield start, found * np.float32(expert != 1)

    patch.setattr(mixture, "_products", products)


def not_renormalized(patch: pytest.MonkeyPatch) -> None:
    """Weights are those of a softmax over all experts."""

    def route(call):  # type: ignore[no-untyped-def]
        other, c = copy.copy(call), call.command
        names = ("columns", "extra", "x_offset", "x_stride", "y_offset", "y_stride", "b_line",
                 "scalar")  # fmt: skip
        fields = {name: getattr(c, name) for name in names}
        other.command = SimpleNamespace(op=abi.VEC_ROUTE, **fields)
        mixture.route(other)

    patch.setitem(OPERATIONS, abi.VEC_ROUTE_CHOSEN, route)


def sigmoid_with(**fields: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Sigmoid routing by other fields of its command."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        def route(call):  # type: ignore[no-untyped-def]
            other, c = copy.copy(call), call.command
            names = ("columns", "extra", "x_offset", "x_stride", "y_offset", "y_stride", "a_bank",
                     "a_line", "b_line", "first", "scalar")  # fmt: skip
            own = {name: getattr(c, name) for name in names}
            other.command = SimpleNamespace(**{**own, **fields})
            mixture.route_sigmoid(other)

        patch.setitem(OPERATIONS, abi.VEC_ROUTE_SIGMOID, route)

    return mistake


def no_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mixture, "_in_groups", lambda flat, packed, best: flat)


def not_rotated(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OPERATIONS, abi.VEC_ROPE, lambda call: None)


def latents_not_normed(patch: pytest.MonkeyPatch) -> None:
    """Norms of other rows than the stream's copy them."""
    own = OPERATIONS[abi.VEC_RMS_APPLY]

    def apply(call):  # type: ignore[no-untyped-def]
        c = call.command
        if c.extra == variant("deepseek_v2").config["hidden_size"]:
            own(call)
            return
        x = call.rows_view(abi.BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
        call.rows_view(abi.BANK_ONCHIP, c.y_offset, c.y_stride, c.columns, np.float16)[...] = x

    patch.setitem(OPERATIONS, abi.VEC_RMS_APPLY, apply)


def heads_with(change: Callable[[np.ndarray, int], np.ndarray]) -> Callable[..., None]:
    """`change` of the heads of k [rows, heads, columns], of which the first so many are shared."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        own = OPERATIONS[abi.VEC_JOIN_HEADS]

        def join(call):  # type: ignore[no-untyped-def]
            own(call)
            c = call.command
            if c.a_line:
                view = (abi.BANK_ONCHIP, c.y_offset, c.y_stride, c.columns, np.float16)
                y = call.rows_view(*view)
                heads = y.reshape(len(y), -1, c.extra).copy()
                y[...] = change(heads, c.a_line).reshape(y.shape)

        patch.setitem(OPERATIONS, abi.VEC_JOIN_HEADS, join)

    return mistake


def own_first(heads: np.ndarray, shared: int) -> np.ndarray:
    """Columns without positions come before those with them."""
    return np.roll(heads, -shared, axis=2)


def halves_exchanged(heads: np.ndarray, shared: int) -> np.ndarray:
    """The second columns of the shared pairs come first."""
    heads[..., :shared] = heads[:, np.arange(heads.shape[1]) ^ 1, :shared]
    return heads


def of_one_head(heads: np.ndarray, shared: int) -> np.ndarray:
    """Only the first head has the shared columns."""
    heads[:, 2:, :shared] = 0
    return heads


def values_not_padded(patch: pytest.MonkeyPatch) -> None:
    """Heads of v are not followed by zeros."""
    own = OPERATIONS[abi.VEC_JOIN_HEADS]

    def join(call):  # type: ignore[no-untyped-def]
        c = call.command
        if c.a_line or c.extra == c.scalar:
            own(call)
            return
        view = (abi.BANK_ONCHIP, c.x_offset, c.x_stride, c.columns // c.extra * c.first, np.float16)
        y = call.rows_view(abi.BANK_ONCHIP, c.y_offset, c.y_stride, c.columns, np.float16)
        y[...] = 0
        y[:, : view[3]] = call.rows_view(*view)

    patch.setitem(OPERATIONS, abi.VEC_JOIN_HEADS, join)


def other_sinks(change: Callable[[F32], F32 | None]) -> Callable[[pytest.MonkeyPatch], None]:
    def mistake(patch: pytest.MonkeyPatch) -> None:
        attention = import_module("lora_host.emu.attention")
        own = attention.head_sinks
        patch.setattr(attention, "head_sinks", lambda call: change(own(call)))

    return mistake


def bias_of_the_next(patch: pytest.MonkeyPatch) -> None:
    own = mixture._bias
    patch.setattr(mixture, "_bias", lambda call, e: own(call, (e + 1) % call.command.experts))


def biases_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mixture, "_bias", lambda call, expert: None)


def not_clamped(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OPERATIONS, abi.VEC_SWIGLU_CLAMPED, OPERATIONS[abi.VEC_SWIGLU])


def biased_weights(patch: pytest.MonkeyPatch) -> None:
    """The bias of the choice is in the weights, too."""

    def weighted(scores, bias, chosen):  # type: ignore[no-untyped-def]
        return np.take_along_axis(scores + bias, chosen, 1)

    patch.setattr(mixture, "_weights", weighted)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("qwen3_moe", another_expert),
        ("qwen3_moe", skipped),
        ("qwen3_moe", not_renormalized),
        ("glm4_moe_single", biased_weights),
        ("glm4_moe", sigmoid_with(b_line=1 | 1 << 16)),  # no groups
        ("glm4_moe", sigmoid_with(scalar=float_bits(1.0))),
        ("glm4_moe", sigmoid_with(first=0)),
        ("deepseek_v2", no_groups),
        ("deepseek_v2", not_rotated),
        ("deepseek_v2", latents_not_normed),
        ("deepseek_v2", values_not_padded),
        ("deepseek_v2", heads_with(own_first)),
        ("deepseek_v3", heads_with(halves_exchanged)),
        ("glm4_moe_lite", heads_with(of_one_head)),
        ("gpt_oss", other_sinks(lambda sinks: None)),
        ("gpt_oss", other_sinks(lambda sinks: np.roll(sinks, 1))),
        ("gpt_oss", bias_of_the_next),
        ("gpt_oss_single", biases_left_out),
        ("gpt_oss", not_clamped),
    ],
)
def test_a_mistake_of_a_kernel_is_seen(
    name: str,
    mistake: Callable[[pytest.MonkeyPatch], None],
    folder_of: Callable[[str], Path],
    oracle_logits: Callable[[str, int], Logits],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with open_runner(folder_of(name), 1, kernels="numpy") as runner:
        got = Driver(runner).feed(0, first_tokens(name, LENGTH), (4, 1))
    assert got.tobytes() != oracle_logits(name, LENGTH).tobytes()
