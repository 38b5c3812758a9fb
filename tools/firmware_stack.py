"""Checks that the firmware's deepest call path fits its stack, and refuses recursion.

    python tools/firmware_stack.py --script card.ld BUILD_FOLDER

Reads the call graphs that gcc writes next to each object (-fcallgraph-info=su). Prints the deepest
path. The exit code is 1 if it exceeds the linker script's STACK_BYTES, or if a function may call
itself, calls through a pointer, or has a frame of unknown size.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

NODE = re.compile(r'node: \{ title: "([^"]+)" label: "([^"]*)"')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
FRAME = re.compile(r"(\d+) bytes \((\w+)\)")


class StackError(Exception):
    """The call graph violates a rule. The message names the function."""


def read_graph(folder: Path) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Frame bytes by function and callees by function, over all .ci files of a folder."""
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.ci")):
        text = path.read_text()
        for title, label in NODE.findall(text):
            frame = FRAME.search(label)
            if frame is None:
                continue  # declared here, defined elsewhere
            if frame.group(2) != "static":
                raise StackError(f"{title}: frame is {frame.group(2)}, expected static")
            frames[title] = int(frame.group(1))
        for source, target in EDGE.findall(text):
            calls.setdefault(source, set()).add(target)
    return frames, calls


def deepest(
    root: str, frames: Mapping[str, int], calls: Mapping[str, set[str]]
) -> tuple[int, list[str]]:
    """Bytes and functions of the deepest path from `root`. StackError on recursion, a call through
    a pointer, or a function without a known frame."""
    known: dict[str, tuple[int, list[str]]] = {}

    def visit(name: str, above: tuple[str, ...]) -> tuple[int, list[str]]:
        if name in above:
            raise StackError(f"{name}: calls itself through {' -> '.join(above)}")
        if name not in frames:
            raise StackError(f"{above[-1]}: calls {name}, whose frame is not known")
        if name not in known:
            best: tuple[int, list[str]] = (0, [])
            for callee in sorted(calls.get(name, ())):
                best = max(best, visit(callee, (*above, name)), key=lambda path: path[0])
            known[name] = (frames[name] + best[0], [name, *best[1]])
        return known[name]

    return visit(root, ())


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="check the firmware's stack")
    parser.add_argument("--root", default="card_main", help="function that the start code calls")
    parser.add_argument("--script", type=Path, required=True, help="linker script")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    limit = re.search(r"STACK_BYTES\s*=\s*(\d+)", options.script.read_text())
    if limit is None:
        print(f"firmware_stack: {options.script}: no STACK_BYTES", file=sys.stderr)
        return 1
    try:
        used, path = deepest(options.root, *read_graph(options.folder))
    except StackError as error:
        print(f"firmware_stack: {error}", file=sys.stderr)
        return 1
    print(f"stack: {used} of {limit.group(1)} B by {' -> '.join(path)}")
    if used > int(limit.group(1)):
        print("firmware_stack: the stack is too small; see card.ld", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
