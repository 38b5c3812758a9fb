"""The scalar functions: accuracy bounds, edges, and one set of coefficients for C and Python."""

from __future__ import annotations

import decimal
import math
from pathlib import Path

import numpy as np
import pytest

from lora_host import coefficients as coefficient_module
from lora_host import numerics
from lora_host.coefficients import coefficients, parse_header

HEADER = Path(__file__).resolve().parents[2] / "csrc/include/lora/coefficients.h"
INF, NAN = float("inf"), float("nan")


def ulp_error_64(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(got - wanted) / np.spacing(np.abs(wanted))))


def test_every_table_has_its_length() -> None:
    tables = parse_header(HEADER.read_text())
    lengths = {name: len(values) for name, values in tables.items() if len(values) > 1}
    assert lengths == {
        "exp_c": 7, "log2_c": 11, "exp2_c": 13, "sin_c": 8, "cos_c": 9, "half_pi": 3,
        "gelu_tanh_a": 1024, "gelu_tanh_b": 1024, "gelu_erf_a": 1024, "gelu_erf_b": 1024,
        "tanh_c": 5,
    }  # fmt: skip


def test_extension_holds_the_header() -> None:
    extension = pytest.importorskip("lora_host._lora", reason="extension not built")
    for name, values in parse_header(HEADER.read_text()).items():
        compiled = coefficient_module._from_extension(extension.ffi, extension.lib, name)
        assert compiled.dtype == values.dtype
        assert compiled.tobytes() == values.tobytes(), name


def test_exp32_accuracy() -> None:
    x = np.concatenate([
        np.linspace(-87, 88.69, 200_001, dtype=np.float32),
        np.linspace(-1, 1, 100_001, dtype=np.float32),
    ])  # fmt: skip
    wanted = np.exp(x.astype(np.float64))
    got = numerics.exp32(x)
    assert got.dtype == np.float32
    error = np.abs(got - wanted) / np.spacing(wanted.astype(np.float32))
    assert error.max() < 1.6


def test_exp32_edges() -> None:
    x = np.array([0.0, -0.0, -87.0, -87.01, 88.7, 88.71, INF, -INF, NAN], np.float32)
    y = numerics.exp32(x)
    assert y[0] == 1 and y[1] == 1
    assert y[2] > 0 and y[3] == 0 and not np.signbit(y[3])
    assert np.isfinite(y[4]) and y[5] == INF
    assert y[6] == INF and y[7] == 0 and np.isnan(y[8])


def test_log2_exp2_accuracy() -> None:
    decimal.getcontext().prec = 40
    values = [1e-30, 0.1, 0.5, 0.70710678, 0.999999, 1.0000001, 1.4142136, 3.0, 1e4, 5e5, 1e300]
    ln2 = decimal.Decimal(2).ln()
    wanted = np.array([float(decimal.Decimal(v).ln() / ln2) for v in values])
    assert ulp_error_64(numerics.log2_64(values), wanted) <= 3
    assert numerics.log2_64([1.0, 2.0, 0.25]).tolist() == [0.0, 1.0, -2.0]
    exponents = np.linspace(-40, 40, 997)
    powers = [float((decimal.Decimal(float(v)) * ln2).exp()) for v in exponents]
    assert ulp_error_64(numerics.exp2_64(exponents), np.array(powers)) <= 2
    edges = numerics.exp2_64([0.0, 10.0, -1022.0, -1023.0, 1024.0, NAN])
    assert edges[:5].tolist() == [1.0, 1024.0, 2.0**-1022, 0.0, INF] and np.isnan(edges[5])


@pytest.mark.parametrize("bad", [0.0, -1.0, INF, NAN])
def test_log2_refuses(bad: float) -> None:
    with pytest.raises(ValueError, match="log2_64"):
        numerics.log2_64([1.0, bad])


def test_power_is_near_libm() -> None:
    exponents = -np.arange(0, 128, 2) / 128
    for theta in (10000.0, 500000.0):
        wanted = np.array([math.pow(theta, e) for e in exponents])
        assert np.max(np.abs(numerics.power_64(theta, exponents) / wanted - 1)) < 4e-15
        assert numerics.power_64(theta, exponents)[0] == 1.0


def test_sincos_accuracy() -> None:
    x = np.concatenate([np.linspace(-8, 8, 20_001), np.linspace(0, 1.6e6, 50_003)])
    x = x.astype(np.float32).astype(np.float64)  # angles are FP32
    sine, cosine = numerics.sincos_64(x)
    wanted_sine = np.array([math.sin(v) for v in x])
    wanted_cosine = np.array([math.cos(v) for v in x])
    assert np.max(np.abs(sine - wanted_sine)) < 3e-16
    assert np.max(np.abs(cosine - wanted_cosine)) < 3e-16
    assert numerics.sincos_64([0.0])[0][0] == 0 and numerics.sincos_64([0.0])[1][0] == 1


@pytest.mark.parametrize("bad", [1.7e6, INF, NAN])
def test_sincos_refuses(bad: float) -> None:
    with pytest.raises(ValueError, match="sincos_64"):
        numerics.sincos_64([bad])


def exact_gelu(kind: str, x: float) -> float:
    if kind == "erf":
        return 0.5 * x * math.erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("kind", ["tanh", "erf"])
def test_gelu(kind: str) -> None:
    x = np.linspace(-8.5, 8.5, 30_001, dtype=np.float32)
    wanted = np.array([exact_gelu(kind, float(v)) for v in x])
    assert np.max(np.abs(numerics.gelu(x, kind) - wanted)) < 2.5e-5
    shifts = coefficients(f"gelu_{kind}_b")
    assert shifts[511:513].tobytes() == bytes(8)
    edges = np.array([-8.01, -INF, 8.0, INF, NAN, -0.0, 7.999], np.float32)
    y = numerics.gelu(edges, kind)
    assert y[:4].tolist() == [0, 0, 8, INF] and np.isnan(y[4]) and y[5] == 0
    assert abs(y[6] - 7.999) < 1e-5


def test_relu_and_silu() -> None:
    y = numerics.relu(np.array([2.5, -1, -0.0, NAN, INF, -INF], np.float32))
    assert y[:3].tolist() == [2.5, 0, 0] and not np.signbit(y[1:3]).any()
    assert np.isnan(y[3]) and y[4] == INF and y[5] == 0
    g = np.linspace(-20, 20, 4001, dtype=np.float32)
    wanted = g / (1 + np.exp(-g.astype(np.float64)))
    assert np.max(np.abs(numerics.silu(g) - wanted)) < 2e-6
    assert np.isnan(numerics.silu(np.array([NAN, -INF], np.float32))[0])


def test_to_fp16() -> None:
    x = np.array([65519.996, 65520, -65520, 2**-25, 2**-25 * 1.5, -NAN, 1 + 2**-11], np.float32)
    bits = numerics.to_fp16(x).view(np.uint16).tolist()
    assert bits == [0x7BFF, 0x7C00, 0xFC00, 0x0000, 0x0001, 0x7E00, 0x3C00]
    odd_nan = np.array([0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert numerics.to_fp16(odd_nan).view(np.uint16).tolist() == [0x7E00, 0x7E00]
    assert numerics.canonical_fp32(odd_nan).view(np.uint32).tolist() == [0x7FC00000] * 2


def test_compiler_flags_keep_every_rounding() -> None:
    from lora_host.ffi_build import FLAGS

    assert "-ffp-contract=off" in FLAGS
    assert not [f for f in FLAGS if f.startswith(("-ffast-math", "-Ofast", "-march", "-funsafe"))]


def test_tanh32_accuracy_and_edges() -> None:
    x = np.linspace(-12, 12, 400_001, dtype=np.float32)
    got = numerics.tanh32(x)
    wanted = np.tanh(x.astype(np.float64))
    spacing = np.spacing(np.maximum(np.abs(wanted), 2.0**-100).astype(np.float32))
    small = np.abs(x) < 0.625
    assert (np.abs(got - wanted) / spacing)[small].max() < 1.5
    assert np.abs(got - wanted).max() < 1.2e-7
    edges = numerics.tanh32(np.array([INF, -INF, NAN, 0.0, 50.0, -50.0], np.float32))
    assert list(edges[[0, 1, 3, 4, 5]]) == [1, -1, 0, 1, -1] and np.isnan(edges[2])
