"""The layers of the C sources: which folder may include which, and no circles of calls.

A call is any use of another file's function or table. Calls within inline functions of a header
count for each file that uses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABI = "csrc/include/lora"
ISA, UNITS, SCHEDULE = "csrc/kernels/isa", "csrc/kernels/units", "csrc/kernels/schedule"
# Each folder and those whose headers it may include. Folders meet through ABI's headers otherwise:
# kernels know no emulator, and firmware reaches its board through hal.h, which emu implements.
TRANSPORTS: dict[str, set[str]] = {
    "emu": {"csrc/emu"},
    "xrt": set(),
    "slash": {"csrc/wire"},
    "remote": {"csrc/wire"},
}
ALLOWED: dict[str, set[str]] = {
    ABI: set(),
    "firmware": {ABI},
    ISA: {ABI},
    UNITS: {ABI, ISA},
    SCHEDULE: {ABI, UNITS},
    "csrc/emu": {ABI, "firmware"},
    "csrc/wire": {ABI},
    "csrc/src": {ABI},
    **{f"csrc/transports/{name}": {ABI, "csrc/src", *below} for name, below in TRANSPORTS.items()},
    "csrc/boardd": {ABI, "csrc/src", "csrc/wire"},
}
CARD_ONLY = {"hal_card.c"}  # implements hal.h in place of csrc/emu/hal_host.c

Graph = dict[str, set[str]]
Sources = Mapping[str, str]


def read_sources() -> dict[str, str]:
    """Path below the root -> text, of all C files that the library is made of."""
    files = [path for folder in ALLOWED for path in sorted((ROOT / folder).glob("*.[ch]"))]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if path.name not in CARD_ONLY
    }


def code_of(text: str) -> str:
    """C without comments, literals and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])*\'', " ", text)
    return re.sub(r"^[ \t]*#(.*\\\n)*.*$", "", text, flags=re.MULTILINE)


def definitions(text: str) -> list[tuple[str, str]]:
    """(head, body) of the functions and tables at file level."""
    found, depth, head, body = [], 0, "", ""
    for part in re.split(r"([{};])", code_of(text)):
        if part == "{":
            depth += 1
        elif part == "}":
            depth -= 1
            if depth == 0 and name_of(head.strip()):
                found.append((head.strip(), body))
                head = ""
            body = body if depth else ""
        elif part == ";" and depth == 0:
            head = ""
        elif depth:
            body += part
        else:
            head += part
    return found


def name_of(head: str) -> str | None:
    """The table or function that a head defines; None for a type, which a table may follow."""
    if "=" in head:
        return re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=", head)[0]
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*(?=[a-z])", "", head, flags=re.DOTALL)
    match = re.search(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)$", head)
    return match[1] if match else None


def words_of(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\b[A-Za-z_]\w*\b", text)}


def static_words(sources: Sources) -> set[str]:
    """`static`, and the macros that stand for it."""
    words = {"static"}
    macros = re.findall(r"^#define (\w+) (.*)$", "\n".join(sources.values()), re.MULTILINE)
    for _ in macros:
        more = {name for name, text in macros if words & words_of([text])} - words
        if not more:
            break
        words |= more
    return words


def closure(start: set[str], graph: Graph) -> set[str]:
    """All that can be reached from `start`, itself included."""
    found, todo = set(start), list(start)
    while todo:
        new = graph.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def include_graph(sources: Sources) -> Graph:
    """File -> the project's files that it includes, found as the compiler finds them."""
    folders = ["csrc/include", "csrc/kernels", "csrc/src", "csrc/emu", "csrc/wire", "firmware"]
    graph: Graph = {path: set() for path in sources}
    for path, text in sources.items():
        for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
            places = [f"{folder}/{name}" for folder in (str(Path(path).parent), *folders)]
            found = [place for place in places if place in sources]
            assert found, f"{path}: {name} is no file of the project"
            graph[path].add(found[0])
    return graph


def call_graph(sources: Sources) -> Graph:
    """Translation unit -> those that define what it uses."""
    parts = {path: definitions(text) for path, text in sources.items()}
    includes, local = include_graph(sources), static_words(sources)
    units = [path for path in sources if path.endswith(".c")]
    home: dict[str, str] = {}
    for path in units:
        for head, _ in parts[path]:
            name = name_of(head)
            if name and not local & words_of([head]):
                assert home.setdefault(name, path) == path, f"{name}: {path} and {home[name]}"
    graph: Graph = {}
    for path in units:
        inline = {
            name_of(head) or "": words_of([body])
            for header in closure({path}, includes)
            for head, body in parts[header]
        }
        words = closure(words_of(body for _, body in parts[path]), inline)
        graph[path] = {home[word] for word in words & home.keys()} - {path}
    return graph


def cycle_of(graph: Graph) -> list[str]:
    """Some circle of the graph, its first file again at the end; empty where there is none."""
    done: set[str] = set()

    def walk(path: str, trail: list[str]) -> list[str]:
        if path in trail:
            return [*trail[trail.index(path) :], path]
        if path in done:
            return []
        for target in sorted(graph[path]):
            if found := walk(target, [*trail, path]):
                return found
        done.add(path)
        return []

    return next((found for path in sorted(graph) if (found := walk(path, []))), [])


def forbidden_arrows(sources: Sources) -> list[str]:
    """Includes that ALLOWED does not name."""
    arrows = [
        (path, target)
        for path, targets in include_graph(sources).items()
        for target in sorted(targets)
    ]
    return [
        f"{path} -> {target}"
        for path, target in arrows
        if (here := str(Path(path).parent)) != (there := str(Path(target).parent))
        and there not in ALLOWED[here]
    ]


def test_the_sources_are_read() -> None:
    sources = read_sources()
    calls = call_graph(sources)
    assert len(calls) > 100 and sum(map(len, calls.values())) > 250
    assert "csrc/kernels/units/job.c" in calls["csrc/kernels/units/matrix.c"]
    assert "csrc/emu/hal_host.c" in calls["firmware/fw_dispatch.c"]
    assert calls["csrc/emu/gather_plan.c"] == set()
    assert set(ALLOWED) == {
        str(path.parent.relative_to(ROOT))
        for path in (*ROOT.glob("csrc/**/*.[ch]"), *ROOT.glob("firmware/*.[ch]"))
    }


def test_arrows_between_folders_point_down() -> None:
    assert forbidden_arrows(read_sources()) == []
    assert cycle_of(ALLOWED) == []


@pytest.mark.parametrize("graph", [include_graph, call_graph])
def test_there_are_no_circles(graph: Callable[[Sources], Graph]) -> None:
    assert cycle_of(graph(read_sources())) == []


def planted(path: str, text: str) -> dict[str, str]:
    sources = read_sources()
    return sources | {path: sources[path] + text}


def test_an_upward_include_is_found() -> None:
    sources = planted("csrc/kernels/units/job.h", '#include "board.h"\n')
    assert forbidden_arrows(sources) == ["csrc/kernels/units/job.h -> csrc/emu/board.h"]


def test_circles_are_found() -> None:
    circle = cycle_of(include_graph(planted("csrc/emu/aurora.h", '#include "board.h"\n')))
    assert set(circle) == {"csrc/emu/aurora.h", "csrc/emu/board.h"}
    call = "int planted(void) { return lora_matrix_begin(0); }\n"
    circle = cycle_of(call_graph(planted("csrc/kernels/units/job.c", call)))
    assert {"csrc/kernels/units/job.c", "csrc/kernels/units/matrix.c"} <= set(circle)


def test_a_circle_through_an_inline_function_is_found() -> None:
    """A header's inline function calls up, and a file below uses it."""
    sources = planted("csrc/emu/profiler.h", "static inline int up(void) { return emu_run(0); }\n")
    sources["csrc/emu/aurora.c"] += "int planted(void) { return up(); }\n"
    circle = cycle_of(call_graph(sources))
    assert {"csrc/emu/aurora.c", "csrc/emu/scheduler.c"} <= set(circle)
