"""Cells that open synthesis makes of the modules and units in overlays/rtl/budget.yaml, for
UltraScale+.

`python -m tools.rtl_cells [NAME ...]` (without names: all that are not `long`) prints a
JSON object a line: name, lut, ff, dsp, ramb36, ramb18, uram, lutram (LUTs that are memory).
`--check` elaborates modules and fails where one has a latch, a loop or a signal with no or
two drivers. `--changed` prints the modules and units, in JSON, that have another source
or budget than when they were counted, by overlays/rtl/counted.yaml. `--record` counts
those again, holds them to the budget and writes that file.
Exit: 0 all right, 1 an unknown name or a wrong design, 2 wrong use. Needs the extra `rtl` (pyosys).

A module is counted flat, several in one synthesis; so is a unit that is `flat`. Another unit is
counted by parts: each different module in it is synthesized once and taken as often as it is
there, which is more. Of a module with `apart` these modules are left out: the rest joins them.

    python -m tools.rtl_cells float_add vfu
    python -m tools.rtl_cells --check port_arbiter
    python -m tools.rtl_cells --changed
    python -m tools.rtl_cells --record port_arbiter
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.rtl_hierarchy import instances

RTL = Path(__file__).resolve().parents[1] / "overlays" / "rtl"
BUDGET = RTL / "budget.yaml"
COUNTED = RTL / "counted.yaml"
PRIMITIVE = "DSP48E2"
TOGETHER = 6  # modules a synthesis; with more, passes that repeat go over all of them
KINDS = {
    "lut": r"LUT\d",
    "ff": r"FD[RSCP]E",
    "dsp": r"DSP48E2",
    "ramb36": r"RAMB36E2",
    "ramb18": r"RAMB18E2",
    "uram": r"URAM288(_BASE)?",
}
# LUTs of each kind of distributed memory.
LUT_MEMORIES = {
    "RAM32M16": 8, "RAM32M": 4, "RAM64M8": 8, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2,
    "RAM128X1D": 4, "RAM256X1D": 8, "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4,
    "RAM512X1S": 8,
}  # fmt: skip


def sources(folder: Path = RTL) -> list[Path]:
    """All source files, the packages first."""
    files = sorted(folder.glob("*/*.sv"))
    return sorted(files, key=lambda path: not path.stem.endswith("_types"))


def run(design: Any, *commands: str) -> None:
    """Runs the tool's commands; it ends the process where one fails."""
    from pyosys import libyosys

    for line in commands:
        libyosys.run_pass(line, design)


def elaborate(design: Any, tops: Sequence[str], options: str = "") -> None:
    """Elaborates `tops` into `design`. The vendor's primitive is a black box: its declaration comes
    from the tool, which reads its own for synthesis."""
    import pyosys

    share = Path(pyosys.__file__).parent / "share" / "xilinx" / "cells_xtra.v"
    (declared,) = re.findall(rf"^module {PRIMITIVE}\(.*?^endmodule", share.read_text(), re.M | re.S)
    named = " ".join(f"--top {top}" for top in tops)
    with tempfile.TemporaryDirectory() as folder:
        primitive = Path(folder) / "primitive.v"
        primitive.write_text(f"(* blackbox *) {declared}\n")
        files = " ".join(map(str, [primitive, *sources()]))
        run(
            design,
            f"read_slang -j 1 -D LORA_FLAT {named} {options} {files}",
            f"delete ={PRIMITIVE}",
        )


def check(top: str) -> None:
    """Elaborates a unit; the tool ends the process where something is wrong."""
    from pyosys import libyosys

    design = libyosys.Design()
    elaborate(design, [top])
    run(design, "proc", "check -assert", "select -assert-none t:$dlatch t:$_DLATCH_*")


def kinds(found: Mapping[str, int]) -> dict[str, int]:
    """Cells by kind. Shift registers are counted as registers."""
    counts = {
        kind: sum(count for name, count in found.items() if re.fullmatch(pattern, name))
        for kind, pattern in KINDS.items()
    }
    memories = [name for name in found if re.match(r"RAM\d", name)]
    return counts | {"lutram": sum(LUT_MEMORIES[name] * found[name] for name in memories)}


def synthesized(design: Any, top: str) -> dict[str, Any]:
    """The statistics of `design`, whose modules stay apart, after synthesis."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "cells.json"
        run(
            design, f"synth_xilinx -family xcup -top {top} -noiopad -nosrl",
            f"tee -q -o {found} stat -json -top {top}",
        )  # fmt: skip
        statistics: dict[str, Any] = json.loads(found.read_text())
    return statistics


def values_of(row: Mapping[str, Any]) -> str:
    """The options that give a module its parameters. `bits`, `of`: a list of numbers as one."""
    options = []
    for name, value in row.get("parameters", {}).items():
        if isinstance(value, dict):
            bits = value["bits"]
            packed = sum(one << bits * place for place, one in enumerate(value["of"]))
            value = f"{bits * len(value['of'])}'h{packed:x}"
        options.append(f"-G {name}={value}")
    return " ".join(options)


def modules(names: Sequence[str], values: str) -> dict[str, dict[str, int]]:
    """Cells of modules that have these parameters, each with all below it, by name and kind."""
    from pyosys import libyosys

    design = libyosys.Design()
    with tempfile.TemporaryDirectory() as folder:
        # what holds them has no ports, so they must be kept
        together = Path(folder) / "together.v"
        cells = " ".join(f"(* keep *) {name} of_{name}();" for name in names)
        together.write_text(f"module together; {cells} endmodule\n")
        elaborate(design, names, values)
        run(design, f"read_verilog {together}")
        found = synthesized(design, "together")["modules"]
    return {name: kinds(found[f"\\{name}"]["num_cells_by_type"]) for name in names}


def joins(top: str, values: str, apart: Sequence[str]) -> dict[str, int]:
    """Cells of a module without those of the modules `apart`, by kind."""
    from pyosys import libyosys

    design = libyosys.Design()
    elaborate(design, [top], f"--keep-hierarchy {values}")
    boxes = " ".join(f"{part}$*" for part in apart)
    run(design, f"blackbox {boxes}", f"hierarchy -top {top}", "flatten")
    return kinds(synthesized(design, top)["modules"][f"\\{top}"]["num_cells_by_type"])


def unit(top: str, values: str) -> dict[str, int]:
    """Cells of a unit and all below it, by kind."""
    from pyosys import libyosys

    elaborated, design = libyosys.Design(), libyosys.Design()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "design.il"
        elaborate(elaborated, [top], f"--keep-hierarchy {values}")
        run(elaborated, f"write_rtlil {text}")
        text.write_text(without_copies(text.read_text()))
        run(design, f"read_rtlil {text}")
    found = synthesized(design, top)["modules"]
    return kinds(whole({name[1:]: one["num_cells_by_type"] for name, one in found.items()}, top))


def whole(modules: Mapping[str, Mapping[str, int]], top: str) -> dict[str, int]:
    """Cells by name of a module and all below it."""
    total: dict[str, int] = {}
    for name, count in modules[top].items():
        below = whole(modules, name) if name in modules else {name: 1}
        for cell, each in below.items():
            total[cell] = total.get(cell, 0) + count * each
    return total


def sums(names: Sequence[str]) -> dict[str, str]:
    """Names of what is counted for modules and units, by name of the budget."""
    rows = budget_rows()
    return source_sums({name: rows[name] for name in names})


def source_sums(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By name, a sum of the row and of the text of all modules in `top` (the name without one) but
    for those inside one that is `apart`, and of packages that are named there; comments do not
    count."""
    files = sources()
    texts = {path.stem: re.sub(rb"(?m)^ *//.*\n| *//.*", b"", path.read_bytes()) for path in files}
    packages = {name for name, text in texts.items() if b"\npackage " in b"\n" + text}
    below = instances(files)
    result = {}
    for name, row in rows.items():
        parts = parts_of(below, row.get("top", name), row.get("apart", ()))
        parts |= named_in(parts, packages, texts)
        digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode())
        for part in sorted(parts):
            digest.update(texts[part])
        result[name] = digest.hexdigest()[:12]
    return result


def parts_of(below: Mapping[str, set[str]], top: str, apart: Collection[str]) -> set[str]:
    """`top` and the modules in it that are not inside one that is `apart`."""
    found: set[str] = set()
    left = [top]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(below[name] - set(apart))
    return found


def named_in(parts: Collection[str], packages: set[str], texts: Mapping[str, bytes]) -> set[str]:
    """The packages that the texts of some modules name, and those that these name."""
    found: set[str] = set()
    left = list(parts)
    while left:
        words = set(re.findall(r"\w+(?=::)", texts[left.pop()].decode()))
        left.extend((words & packages) - found)
        found |= words & packages
    return found


def budget_rows() -> dict[str, Any]:
    """Modules and units of the budget."""
    budget = yaml.safe_load(BUDGET.read_text())
    return {**budget["modules"], **budget["units"]}


def changed(names: Sequence[str]) -> list[str]:
    """Which of these are not what was counted last."""
    known = yaml.safe_load(COUNTED.read_text()) if COUNTED.exists() else {}
    with quiet_output():
        now = sums(names)
    return [name for name in names if known.get(name) != now[name]]


def without_copies(text: str) -> str:
    """A design in the tool's language in which modules that are equal but for names are one."""
    bodies: dict[str, str] = {}
    for part in re.split(r"(?<=\nend\n)", text):  # what is inside a module is indented
        if name := re.search(r"^module (\S+)$", part, re.MULTILINE):
            bodies[name[1]] = part
    same: dict[str, str] = {}  # a module and the one that is kept for it
    kept: dict[str, str] = {}  # what is written and its module
    for name in sorted(bodies, key=lambda one: -one.count(".")):  # the deepest instances first
        body = re.sub(
            r"^(\s*cell )(\S+)( )", lambda m: m[1] + same.get(m[2], m[2]) + m[3], bodies[name],
            flags=re.MULTILINE,
        )  # fmt: skip
        same[name] = kept.setdefault(anonymous(body), name)
        bodies[name] = body
    return "".join(bodies[name] for name in bodies if same[name] == name)


def anonymous(body: str) -> str:
    """A module without its name and attributes, numbers of the tool's own names in order."""
    body = re.sub(r"^\s*attribute .*\n", "", body, flags=re.MULTILINE)
    body = re.sub(r"^module \S+$", "module", body, flags=re.MULTILINE)
    numbers: dict[str, int] = {}
    return re.sub(
        r"\$(?:\d+)", lambda match: f"${numbers.setdefault(match[0], len(numbers))}", body
    )


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """The tool writes its log to file descriptor 1."""
    kept = os.dup(1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def counted(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Name and cells of modules and units of the budget."""
    rows = budget_rows()
    groups: dict[str, list[str]] = {}
    for name in names:
        row = rows[name]
        if "top" in row or "apart" in row:
            with quiet_output():
                cells = alone(row.get("top", name), row)
            yield {"name": name, **cells}
        else:
            groups.setdefault(values_of(row), []).append(name)
    for values, group in groups.items():
        for begin in range(0, len(group), TOGETHER):
            with quiet_output():
                found = modules(group[begin : begin + TOGETHER], values)
            yield from ({"name": name, **cells} for name, cells in found.items())


def alone(top: str, row: Mapping[str, Any]) -> dict[str, int]:
    """Cells of a module that shares its synthesis with no other."""
    if "apart" in row:
        return joins(top, values_of(row), row["apart"])
    return modules([top], values_of(row))[top] if "flat" in row else unit(top, values_of(row))


def over(name: str, found: Mapping[str, int], limits: Mapping[str, Any]) -> str | None:
    """What is wrong with the counts of a module or unit."""
    beyond = {kind: n for kind, n in found.items() if n > limits.get(kind, n)}
    if beyond or found["lut"] == 0:
        return f"{name}: {beyond} found, {limits} allowed"
    # A budget far above what is used holds nothing; counts differ by some with what is beside.
    if found["lut"] < 0.85 * limits["lut"] - 5:
        return f"{name}: {found['lut']} LUTs found, {limits['lut']} allowed: lower the budget"
    return None


def record(names: Sequence[str]) -> None:
    """Counts what has changed and writes down that it keeps its budget."""
    rows = budget_rows()
    for found in counted(changed(names)):
        print(json.dumps(found), flush=True)
        name = found.pop("name")
        if wrong := over(name, found, rows[name]):
            sys.exit(wrong)
        known = yaml.safe_load(COUNTED.read_text()) if COUNTED.exists() else {}
        with quiet_output():
            known |= sums([name])
        COUNTED.write_text(written(known))


def written(known: Mapping[str, str]) -> str:
    """The file's text. Sums are quoted: some look like numbers."""
    return HEAD + "".join(f'{name}: "{known[name]}"\n' for name in sorted(known))


HEAD = """# Sums of source and budget of modules and units that kept it when they were counted last,
# by `python -m tools.rtl_cells --record`. make rtl and make rtl-slow count what is something else.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m tools.rtl_cells", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("names", nargs="*", metavar="NAME", help="modules and units of the budget")
    action = made.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="elaborate modules of the source")
    action.add_argument("--changed", action="store_true", help="print those to be counted again")
    action.add_argument("--record", action="store_true", help="count these and write that down")
    return made


def main() -> None:
    options = parser().parse_args()
    names: list[str] = options.names
    if options.check and not names:
        parser().error("--check needs a NAME")
    rows = budget_rows()
    known = {path.stem for path in sources()} if options.check else rows
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{unknown[0]}: not in {RTL if options.check else BUDGET}")
    if options.check:
        for top in names:
            check(top)
        return
    names = names or [name for name, one in rows.items() if "long" not in one]
    if options.changed:
        print(json.dumps(changed(names)))
    elif options.record:
        record(names)
    else:
        for one in counted(names):
            print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
