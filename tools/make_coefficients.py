"""Generates csrc/include/lora/coefficients.h and csrc/src/coefficients.c. Run once, by hand.

Every stored bit of every model depends on these numbers. So the committed header is final and no
build runs this file (it needs mpmath). `--check` compares without writing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "csrc/include/lora/coefficients.h"
SOURCE = ROOT / "csrc/src/coefficients.c"
GELU_INTERVALS = 1024
mpmath.mp.prec = 240
mpf = mpmath.mpf
Real = Any  # mpmath carries no types
Function = Callable[[Real], Real]


@dataclass(frozen=True)
class Entry:
    """One constant (a list with one value) or one table of the header."""

    name: str
    kind: str  # "float" or "double"
    values: list[float]
    comment: str
    scalar: bool = False


def near_minimax(function: Function, low: Real, high: Real, degree: int) -> list[Real]:
    """Interpolates at Chebyshev nodes; coefficients from the highest power down."""
    count = degree + 1
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [
        middle + half * mpmath.cos((2 * i + 1) * mpmath.pi / (2 * count)) for i in range(count)
    ]
    matrix = mpmath.matrix(count, count)
    values = mpmath.matrix(count, 1)
    for i, node in enumerate(nodes):
        values[i] = function(node)
        for j in range(count):
            matrix[i, j] = node ** (degree - j)
    return list(mpmath.lu_solve(matrix, values))


def to_float(value: Real) -> float:
    """Nearest binary32. mpmath rounds once; the value then passes through double unchanged."""
    with mpmath.workprec(24):
        rounded = float(+value)
    if rounded and abs(rounded) < 2.0**-126:  # binary32 subnormal: round on its fixed grid
        rounded = float(mpmath.nint(value * mpf(2) ** 149) * mpf(2) ** -149)
    return rounded + 0.0


def to_double(value: Real) -> float:
    with mpmath.workprec(53):
        return float(+value) + 0.0


def cut(value: Real, bits: int) -> float:
    """`value` truncated to `bits` significant bits, so that its multiples are exact."""
    exponent = int(mpmath.floor(mpmath.log(abs(value), 2))) + 1 - bits
    return float(mpmath.floor(value / mpf(2) ** exponent) * mpf(2) ** exponent)


def exp_entries() -> list[Entry]:
    """exp(r) = 1 + r + r*r*q(r) on [-ln2/2, ln2/2]: exact at 0, degree 6."""
    half = mpmath.log(2) / 2

    def tail(r: Real) -> Real:
        return mpmath.nsum(lambda k: r**k / mpmath.factorial(k + 2), [0, 40])

    coefficients = [to_float(c) for c in near_minimax(tail, -half, half, 4)] + [1.0, 1.0]
    high = 0.693359375  # 9 significant bits: n*LN2_HI is exact for |n| <= 2^15
    return [
        Entry("exp_c", "float", coefficients, "exp(r), highest power first"),
        Entry("log2e", "float", [to_float(1 / mpmath.log(2))], "", True),
        Entry("ln2_hi", "float", [high], "n*ln2_hi is exact", True),
        Entry("ln2_lo", "float", [to_float(mpmath.log(2) - mpf(high))], "", True),
        Entry("exp_min", "float", [-87.0], "below: +0", True),
        Entry("exp_max", "float", [to_float(mpf("88.7"))], "above: +infinity", True),
    ]


def log2_exp2_entries() -> list[Entry]:
    """log2(m) = s*P(s*s), s = (m-1)/(m+1), m in [sqrt(1/2), sqrt(2)]; 2^r on [-1/2, 1/2]."""
    limit = ((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)) ** 2

    def log_series(z: Real) -> Real:
        s = mpmath.sqrt(z)
        return 2 / mpmath.log(2) * (mpmath.atanh(s) / s if s else mpf(1))

    exp2 = near_minimax(
        lambda r: mpmath.expm1(r * mpmath.log(2)) / r if r else mpmath.log(2),
        mpf(-1) / 2, mpf(1) / 2, 11,
    )  # fmt: skip
    log2 = near_minimax(log_series, mpf(0), limit, 10)
    return [
        Entry("log2_c", "double", [to_double(c) for c in log2], "log2(m)/s in s*s"),
        Entry("exp2_c", "double", [*(to_double(c) for c in exp2), 1.0], "2^r"),
        Entry("ln2", "double", [to_double(mpmath.log(2))], "", True),
        Entry("sqrt_half", "double", [to_double(mpmath.sqrt(mpf(1) / 2))], "", True),
    ]


def sincos_entries() -> list[Entry]:
    """sin(r) = r*S(r*r) and cos(r) = C(r*r) on [-pi/4, pi/4], both exact at 0."""
    limit = (mpmath.pi / 4) ** 2 * mpf("1.0001")

    def sin_tail(z: Real) -> Real:
        r = mpmath.sqrt(z)
        return (mpmath.sin(r) / r - 1) / z

    def cos_tail(z: Real) -> Real:
        return (mpmath.cos(mpmath.sqrt(z)) - 1) / z

    sin = [to_double(c) for c in near_minimax(sin_tail, mpf(0), limit, 6)]
    cos = [to_double(c) for c in near_minimax(cos_tail, mpf(0), limit, 7)]
    half_pi = mpmath.pi / 2
    p1 = cut(half_pi, 33)
    p2 = cut(half_pi - mpf(p1), 33)
    p3 = to_double(half_pi - mpf(p1) - mpf(p2))
    return [
        Entry("sin_c", "double", [*sin, 1.0], "sin(r)/r in r*r"),
        Entry("cos_c", "double", [*cos, 1.0], "cos(r) in r*r"),
        Entry("half_pi", "double", [p1, p2, p3], "n*P1, n*P2 are exact for |n| <= 2^20"),
        Entry("two_over_pi", "double", [to_double(2 / mpmath.pi)], "", True),
    ]


def tanh_entries() -> list[Entry]:
    """tanh(x) = x + x*z*P(z), z = x*x, below 5/8: exact at 0."""

    def tail(z: Real) -> Real:
        x = mpmath.sqrt(z)
        return (mpmath.tanh(x) / x - 1) / z

    values = [to_float(c) for c in near_minimax(tail, mpf(0), (mpf(5) / 8) ** 2, 4)]
    return [Entry("tanh_c", "float", values, "(tanh(x)/x - 1)/z in z = x*x")]


def gelu_tanh(x: Real) -> Real:
    inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpf("0.044715") * x**3)
    return x / 2 * (1 + mpmath.tanh(inner))


def gelu_erf(x: Real) -> Real:
    return x / 2 * mpmath.erfc(-x / mpmath.sqrt(2))


def gelu_entries() -> list[Entry]:
    """Linear interpolation between exact values on 1024 equal intervals of [-8, 8):
    y = a_i*x + b_i."""
    entries = []
    for name, function in (("gelu_tanh", gelu_tanh), ("gelu_erf", gelu_erf)):
        ends = [function(mpf(i - 512) / 64) for i in range(GELU_INTERVALS + 1)]
        slopes = [(ends[i + 1] - ends[i]) * 64 for i in range(GELU_INTERVALS)]
        shifts = [ends[i] - slopes[i] * mpf(i - 512) / 64 for i in range(GELU_INTERVALS)]
        shifts[511] = shifts[512] = mpf(0)  # both chords pass through (0, 0)
        for part, values in (("a", slopes), ("b", shifts)):
            entries.append(Entry(f"{name}_{part}", "float", [to_float(v) for v in values], ""))
    return entries


def literal(value: float, kind: str) -> str:
    if kind == "float":
        assert float(np.float32(value)) == value, value
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}" + ("f" if kind == "float" else "")


def declaration(entry: Entry) -> str:
    texts = [literal(v, entry.kind) for v in entry.values]
    head = f"/* {entry.comment} */\n" if entry.comment else ""
    if entry.scalar:
        return f"{head}static const {entry.kind} lora_{entry.name} = {texts[0]};\n"
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {text},"
    lines.append(line.rstrip(","))
    body = "\n".join(lines)
    return f"{head}static const {entry.kind} lora_{entry.name}[{len(texts)}] = {{\n{body}}};\n"


def header_text(entries: list[Entry]) -> str:
    parts = [
        "/* Made once by tools/make_coefficients.py; final. Every stored bit depends on these. */\n"
        "#ifndef LORA_COEFFICIENTS_H\n#define LORA_COEFFICIENTS_H\n",
        *(declaration(entry) for entry in entries),
        "#endif\n",
    ]
    return "\n".join(parts)


def source_text(entries: list[Entry]) -> str:
    rows = "\n".join(
        f'    {{"{e.name}", {"&" if e.scalar else ""}lora_{e.name}, {len(e.values)}, '
        f"sizeof({e.kind})}},"
        for e in entries
    )
    return (
        "/* Made by tools/make_coefficients.py: the coefficients by name, for Python. */\n"
        '#include "lora/coefficients.h"\n\n#include <string.h>\n\n#include "lora/constants.h"\n\n'
        f"static const struct lora_coefficient table[] = {{\n{rows}\n}};\n\n"
        "const struct lora_coefficient *lora_coefficient_find(const char *name) {\n"
        "    for (uint32_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)\n"
        "        if (strcmp(table[i].name, name) == 0)\n"
        "            return &table[i];\n"
        "    return NULL;\n"
        "}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    entries = exp_entries() + log2_exp2_entries() + sincos_entries() + gelu_entries()
    entries += tanh_entries()
    different = False
    for path, text in ((HEADER, header_text(entries)), (SOURCE, source_text(entries))):
        if check:
            if not path.exists() or path.read_text() != text:
                print(f"{path.relative_to(ROOT)} differs from the output of this tool")
                different = True
        else:
            path.write_text(text)
    return int(different)


if __name__ == "__main__":
    sys.exit(main())
