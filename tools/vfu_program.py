"""Writes overlays/rtl/vfu/vfu_program.sv: the vector unit's programs, constants and GELU tables.

`python tools/vfu_program.py` writes the file; with `--check` it exits 1 where the file differs. The
values are those of csrc/include/lora/coefficients.h (docs/numbers.md, 4.6)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lora_host.numerics import coefficients

TARGET = Path(__file__).resolve().parents[1] / "overlays" / "rtl" / "vfu" / "vfu_program.sv"
CONSTANT = 64  # operands from here on
INDEX, LENGTH = "s46", "s47"
FOLDED = [f"s{i}" for i in range(48, 56)]
COMMAND, NUMERATOR, PLUS, COLUMNS, KEPT = (f"s{i}" for i in range(56, 61))
MEAN, FACTOR = "s60", "s61"
TINY = 2.0**-149
VALUES, OTHER, TABLE_A, TABLE_B = range(4)  # streams; sums come as the second
SUM = OTHER
INVERSE_127 = float.fromhex("0x1.020408p-7")


class Program:
    """Instructions, entry points and constants so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entries: dict[str, int] = {}
        self.constants: list[int] = []

    def entry(self, name: str) -> None:
        """What follows begins a program."""
        self.entries[name] = len(self.lines)

    def operand(self, value: int | str | float) -> int:
        """A register (int), a scalar of the command or row ("s56"), or an FP32 constant (float)."""
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            return CONSTANT + int(value[1:])
        bits = int(np.array(value, np.float32).view(np.uint32))
        if bits not in self.constants:
            self.constants.append(bits)
        return CONSTANT + self.constants.index(bits)

    def __call__(
        self, op: str, to: int = 0, a: int | str | float = 0, b: int | str | float = 0
    ) -> None:
        self.lines.append(f"{{OP_{op}, 4'd{to}, 7'd{self.operand(a)}, 7'd{self.operand(b)}}}")

    def end(self) -> None:
        self("END")


def value(name: str, index: int | None = None) -> float:
    found = coefficients(name)
    return float(found[0 if index is None else index])


def exponential(p: Program, x: int, y: int, spare: int) -> None:
    """y = exp(x), 4.1; uses four registers from `spare` on."""
    n, r, t, s = range(spare, spare + 4)
    p("MULTIPLY", n, x, value("log2e"))
    p("RINT", n, n)
    p("MULTIPLY", t, n, value("ln2_hi"))
    p("SUBTRACT", r, x, t)
    p("MULTIPLY", t, n, value("ln2_lo"))
    p("SUBTRACT", r, r, t)
    p("MOVE", s, value("exp_c", 0))
    for i in range(1, 7):
        p("MULTIPLY", s, s, r)
        p("ADD", s, s, value("exp_c", i))
    p("POWER_HIGH", t, n)
    p("MULTIPLY", s, s, t)
    p("POWER_LOW", t, n)
    p("MULTIPLY", s, s, t)
    p("LESS", 0, x, value("exp_min"))
    p("SELECT", s, 0.0, s)
    p("LESS", 0, value("exp_max"), x)
    p("SELECT", s, float("inf"), s)
    p("IS_NAN", 0, x)
    p("SELECT", y, x, s)


def tanh(p: Program, x: int, y: int, spare: int) -> None:
    """y = tanh(x), 4.7; uses eight registers from `spare` on."""
    size, t, far, z = range(spare, spare + 4)
    p("ABSOLUTE", size, x)
    p("ADD", t, size, size)
    exponential(p, t, far, spare + 4)
    p("ADD", far, far, 1.0)
    p("DIVIDE", far, 2.0, far)
    p("SUBTRACT", far, 1.0, far)
    p("SIGN", far, far, x)
    p("MULTIPLY", z, x, x)
    p("MOVE", t, value("tanh_c", 0))
    for i in range(1, 5):
        p("MULTIPLY", t, t, z)
        p("ADD", t, t, value("tanh_c", i))
    p("MULTIPLY", z, x, z)
    p("MULTIPLY", z, z, t)
    p("ADD", z, x, z)
    p("LESS", 0, size, 0.625)
    p("SELECT", y, z, far)


def gelu(p: Program, x: int, y: int, table: int, spare: int) -> None:
    """y = gelu(x), 4.2; uses a register, `spare`."""
    choice = TINY if table else 0.0  # its lowest bit says which table
    p("SLOPE", spare, x, choice)
    p("MULTIPLY", y, spare, x)
    p("SHIFT", spare, x, choice)
    p("ADD", y, y, spare)
    p("LESS", 0, x, 8.0)
    p("SELECT", y, y, x)
    p("LESS", 0, x, -8.0)
    p("SELECT", y, 0.0, y)


def elementwise(p: Program) -> None:
    x, z, y = 0, 1, 2

    def two(name: str) -> None:
        p.entry(name)
        p("LOAD_HALF", x, 0, VALUES)
        p("LOAD_HALF", z, 0, OTHER)

    def store() -> None:
        p("STORE_HALF", 0, y)
        p.end()

    p.entry("EMBED")  # x is the token's row, scaled by 1 where it is not
    p("LOAD_HALF", x, 0, TABLE_A)
    p("LOAD_HALF", z, 0, TABLE_B)
    p("MULTIPLY", x, x, NUMERATOR)
    p("ADD", y, x, z)
    store()
    p.entry("ADD_POSITION")
    p("LOAD_HALF", x, 0, VALUES)
    p("LOAD_HALF", z, 0, TABLE_B)
    p("ADD", y, x, z)
    store()
    two("RESIDUAL")
    p("MULTIPLY", z, z, NUMERATOR)
    p("ADD", y, x, z)
    store()
    p.entry("RELU")
    p("LOAD_HALF", x, 0, VALUES)
    p("LESS", 0, 0.0, x)
    p("SELECT", y, x, 0.0)
    p("IS_NAN", 0, x)
    p("SELECT", y, x, y)
    store()
    for table, name in enumerate(("GELU_TANH", "GELU_ERF")):
        p.entry(name)
        p("LOAD_HALF", x, 0, VALUES)
        gelu(p, x, y, table, 3)
        store()
    two("SWIGLU")
    p("NEGATE", 3, x)
    exponential(p, 3, y, 4)
    p("ADD", y, y, 1.0)
    p("DIVIDE", y, x, y)
    p("MULTIPLY", y, y, z)
    store()
    two("GEGLU")
    gelu(p, x, y, 0, 3)
    p("MULTIPLY", y, y, z)
    store()
    p.entry("QUANTIZE")
    p("LOAD_HALF", x, 0, VALUES)
    p("MULTIPLY", y, x, COMMAND)
    p("STORE_INT8", 0, y)
    p.end()
    p.entry("SCALE")
    p("LOAD_SINGLE", x, 0, VALUES)
    p("MULTIPLY", y, x, COMMAND)
    p("STORE_SINGLE", 0, y)
    p.end()
    p.entry("SOFTCAP")
    p("LOAD_SINGLE", x, 0, VALUES)
    p("DIVIDE", z, 1.0, COMMAND)
    p("MULTIPLY", x, x, z)
    tanh(p, x, y, 3)
    p("MULTIPLY", y, y, COMMAND)
    p("STORE_SINGLE", 0, y)
    p.end()


def factor(p: Program, total: int) -> None:
    """Keeps r of a sum: 3.4, 3.5."""
    spare = 6
    p("FROM_INTEGER", spare, COLUMNS)
    p("DIVIDE", total, total, spare)
    p("ADD", total, total, COMMAND)
    p("ROOT", total, total)
    p("DIVIDE", total, NUMERATOR, total)
    p("KEEP", 1, total)
    p.end()


def tree(p: Program, to: int) -> None:
    """The tree of 2.2 of the sums of eight segments; uses two registers behind `to`."""
    left, right = to + 1, to + 2
    p("ADD", to, FOLDED[0], FOLDED[1])
    p("ADD", left, FOLDED[2], FOLDED[3])
    p("ADD", to, to, left)
    p("ADD", left, FOLDED[4], FOLDED[5])
    p("ADD", right, FOLDED[6], FOLDED[7])
    p("ADD", left, left, right)
    p("ADD", to, to, left)


def folding(p: Program) -> None:
    """What is folded, and what becomes of it: 3.4, 3.5, 3.11, 3.12, 6.7, 6.10."""
    x, y = 0, 1

    def folds(name: str, load: str, stream: int, *steps: tuple[str, int, int | str]) -> None:
        p.entry(name)
        p(load, x, 0, stream)
        for op, a, b in steps:
            p(op, x, a, b)
        p("STORE_SINGLE", 0, x)
        p.end()

    folds("VALUES", "LOAD_HALF", VALUES)
    folds("SINGLES", "LOAD_SINGLE", VALUES)
    folds("RECORDS", "LOAD_SINGLE", OTHER)
    folds("SQUARES", "LOAD_HALF", VALUES, ("MULTIPLY", x, x))
    folds("DEVIATIONS", "LOAD_HALF", VALUES, ("SUBTRACT", x, MEAN), ("MULTIPLY", x, x))

    p.entry("MEAN")  # of a segment, kept; its sum is stored
    p("FROM_INTEGER", y, LENGTH)
    p("DIVIDE", y, FOLDED[0], y)
    p("KEEP", 0, y)
    p.entry("FOLDED")
    p("STORE_SINGLE", 0, FOLDED[0])
    p.end()
    p.entry("INDEX")
    p("STORE_BITS", 0, INDEX)
    p.end()
    p.entry("MAXIMUM")
    p("STORE_BITS", 0, FOLDED[0])
    p.end()
    p.entry("HEAD_SUM")
    tree(p, x)
    p("STORE_SINGLE", 0, x)
    p.end()
    p.entry("HEAD_FACTOR")
    tree(p, x)
    factor(p, x)
    p.entry("FOLDED_FACTOR")
    p("MOVE", x, FOLDED[0])
    factor(p, x)

    def keep_inverse(above: float, below: int | str) -> None:
        p("DIVIDE", y, above, below)
        p("LESS", 0, 0.0, below)
        p("SELECT", y, y, 0.0)
        p("KEEP", 1, y)
        p.end()

    p.entry("HEAD_SCALE")
    p("DIVIDE", x, FOLDED[0], 127.0)
    p("TO_HALF", x, x)
    p("STORE_HALF", 0, x)
    keep_inverse(1.0, x)
    p.entry("ROW_SCALE")
    p("MULTIPLY", x, FOLDED[0], INVERSE_127)
    p("STORE_BITS", 0, x)
    keep_inverse(127.0, FOLDED[0])
    p.entry("QUANTIZE_BY")
    p("LOAD_HALF", x, 0, VALUES)
    p("MULTIPLY", x, x, FACTOR)
    p("STORE_INT8", 0, x)
    p.end()
    p.entry("NOTHING")
    p.end()


def rotation(p: Program) -> None:
    """Both halves of a head's columns: 3.7. The second has its operands in registers."""
    a, b, cos, sin, y, spare = range(6)
    p.entry("ROPE_LOW")
    p("LOAD_HALF", a, 0, VALUES)
    p("LOAD_HALF", b, 0, OTHER)
    p("LOAD_SINGLE", cos, 0, TABLE_A)
    p("LOAD_SINGLE", sin, 0, TABLE_B)
    p("MULTIPLY", y, a, cos)
    p("MULTIPLY", spare, b, sin)
    p("SUBTRACT", y, y, spare)
    p("STORE_HALF", 0, y)
    p.end()
    p.entry("ROPE_HIGH")
    p("MULTIPLY", y, b, cos)
    p("MULTIPLY", spare, a, sin)
    p("ADD", y, y, spare)
    p("STORE_HALF", 0, y)
    p.end()


def norms(p: Program) -> None:
    """A row's sums, then its lines: 3.4 and 3.5."""
    t, q, n, t_b, q_b, n_b, u, v, w = range(9)

    def lengths() -> None:
        p("LENGTHS", n)
        p("FROM_INTEGER", n, n)
        p("LESS", 0, 0.0, n)
        p("SELECT", t, t, 0.0)

    def gamma() -> None:
        p("LOAD_HALF", 1, 0, TABLE_A)
        p("ADD", 1, 1, PLUS)
        p("MULTIPLY", 0, 0, 1)

    p.entry("RMS_ROW")
    p("LOAD_SINGLE", t, 0, SUM)
    lengths()
    for step in ("ROTATE_1", "ROTATE_2", "ROTATE_4"):
        p(step, t_b, t)
        p("ADD", t, t, t_b)
    factor(p, t)
    p.entry("RMS_APPLY")
    p("LOAD_HALF", 0, 0, VALUES)
    p("MULTIPLY", 0, 0, FACTOR)
    gamma()
    p("STORE_HALF", 0, 0)
    p.end()

    p.entry("LN_ROW")
    p("LOAD_PAIR", t, 0, SUM)
    p("LOAD_ODD", q, 0, SUM)
    lengths()
    for step in ("ROTATE_1", "ROTATE_2", "ROTATE_4"):
        for found, register in ((t_b, t), (q_b, q), (n_b, n)):
            p(step, found, register)
        p("DIVIDE", u, t_b, n_b)
        p("DIVIDE", v, t, n)
        p("SUBTRACT", u, u, v)
        p("MULTIPLY", u, u, u)
        p("MULTIPLY", v, n, n_b)
        p("ADD", w, n, n_b)
        p("DIVIDE", v, v, w)
        p("MULTIPLY", u, u, v)
        p("ADD", v, q, q_b)
        p("ADD", u, v, u)
        p("LESS", 0, 0.0, n_b)  # else a
        p("SELECT", u, u, q)
        p("LESS", 0, 0.0, n)  # else b
        p("SELECT", q, u, q_b)
        p("LESS", 0, 0.0, n_b)
        p("ADD", u, t, t_b)
        p("SELECT", u, u, t)
        p("LESS", 0, 0.0, n)
        p("SELECT", t, u, t_b)
        p("MOVE", n, w)
    p("FROM_INTEGER", v, COLUMNS)
    p("DIVIDE", t, t, v)
    p("KEEP", 0, t)
    factor(p, q)
    p.entry("LN_APPLY")
    p("LOAD_HALF", 0, 0, VALUES)
    p("SUBTRACT", 0, 0, MEAN)
    p("MULTIPLY", 0, 0, FACTOR)
    gamma()
    p("LOAD_HALF", 1, 0, TABLE_B)
    p("ADD", 0, 0, 1)
    p("STORE_HALF", 0, 0)
    p.end()


def table(name: str, kind: str) -> list[str]:
    """A GELU table as a ROM function of table and index."""
    words = [
        f"32'h{int(w):08x}"
        for n in ("tanh", "erf")
        for w in coefficients(f"gelu_{n}_{kind}").view(np.uint32)
    ]
    rows = [", ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
    return [f"  parameter logic [31:0] {name}[2048] = '{{", *[f"    {row}," for row in rows[:-1]],
            f"    {rows[-1]}", "  };"]  # fmt: skip


def text() -> str:
    """The whole file."""
    p = Program()
    elementwise(p)
    norms(p)
    folding(p)
    rotation(p)
    out = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by tools/vfu_program.py: programs of the vector unit, their constants, the GELU",
        "// tables of docs/numbers.md, 4.2, tanh first.",
        "package vfu_program;",
        "  import vfu_types::*;",
    ]
    out += [f"  parameter logic [8:0] AT_{name} = 9'd{at};" for name, at in p.entries.items()]
    out.append(f"  parameter logic [23:0] PROGRAM[{len(p.lines)}] = '{{")
    out += [f"    {line}," for line in p.lines[:-1]] + [f"    {p.lines[-1]}", "  };"]
    out.append(f"  parameter logic [31:0] CONSTANTS[{len(p.constants)}] = '{{")
    out += [f"    32'h{c:08x}," for c in p.constants[:-1]] + [
        f"    32'h{p.constants[-1]:08x}",
        "  };",
    ]
    out += table("GELU_SLOPES", "a") + table("GELU_SHIFTS", "b")
    out.append("endpackage")
    return "\n".join(out) + "\n"


def main() -> None:
    made = text()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if TARGET.read_text() == made else f"{TARGET} differs; run tools/vfu_program.py")
    TARGET.write_text(made)


if __name__ == "__main__":
    main()
