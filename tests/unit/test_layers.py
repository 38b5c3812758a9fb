"""Arrows between packages point down: what each imports, for type annotations too, is what
sdk/layers.yaml allows, and the allowed arrows have no cycle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SDK = ROOT / "sdk"
ALLOWED: dict[str, list[str]] = yaml.safe_load((SDK / "layers.yaml").read_text())
PACKAGES = ("lora_sdk", "lora_prefill", "lora_vllm", "lora_cluster", "lora_lab")
DOORS = {  # modules of a package itself
    "lora_sdk": {"__init__.py", "optional.py"},
    "lora_cluster": {"__init__.py"},
    "lora_lab": {"__init__.py", "product.py"},
}


IMPORTS = (ast.Import, ast.ImportFrom)


def part_of(module: str) -> str | None:
    """The row of sdk/layers.yaml that a module belongs to, None for a package's own modules."""
    package, _, rest = module.partition(".")
    if package not in PACKAGES:
        return None
    part = rest.partition(".")[0]
    for name in (package, f"{package}.{part}", part if package == "lora_sdk" else ""):
        if name in ALLOWED:
            return name
    return None


def folder_of(part: str) -> Path:
    """Where the modules of a row lie."""
    return SDK.joinpath(*(part.split(".") if part.startswith("lora_") else ("lora_sdk", part)))


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules that the code imports, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"line {node.lineno}: an import of a package above"
            if node.level == 0:
                yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def upward(part: str, source: str) -> list[str]:
    """Imports of a module of `part` that its row does not allow."""
    allowed = {part, *ALLOWED[part], None}
    return [name for name in imports(ast.parse(source)) if part_of(name) not in allowed]


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_lies_below(part: str) -> None:
    files = sorted(folder_of(part).rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(SDK)): found
        for path in files
        if (found := upward(part, path.read_text(encoding="utf-8")))
    }
    assert not wrong


def test_an_upward_import_is_found() -> None:
    assert upward("plan", "from lora_sdk.model.spec import ModelConfig") == []
    planted = "def late():\n    from lora_sdk.engine.engine import Engine"
    assert upward("plan", planted) == ["lora_sdk.engine.engine.Engine"]
    typed = "if TYPE_CHECKING:\n    from lora_lab.timing.run import RunTime"
    assert upward("engine", typed) == ["lora_lab.timing.run.RunTime"]


def test_the_allowed_arrows_have_no_cycle() -> None:
    assert list(TopologicalSorter(ALLOWED).static_order())


def heads(tree: ast.AST) -> Iterator[ast.AST]:
    """What is not inside a function, imports under TYPE_CHECKING among it."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from heads(node)


def arrows(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports at its head, by name."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        lines = (one for one in heads(ast.parse(source)) if isinstance(one, IMPORTS))
        names = [name for line in lines for name in imports(line)]
        found[module] = {
            known for name in names for known in (name, name.rpartition(".")[0])
            if known in sources and known != module
        }  # fmt: skip
    return found


def test_no_modules_import_each_other() -> None:
    """Nor in a circle, for type annotations too."""
    files = [path for name in PACKAGES for path in (SDK / name).rglob("*.py")]
    names = {".".join(path.relative_to(SDK).with_suffix("").parts): path for path in files}
    sources = {
        name: path.read_text(encoding="utf-8")
        for name, path in names.items()
        if path.name != "__init__.py"
    }
    assert len(sources) > 600
    assert list(TopologicalSorter(arrows(sources)).static_order())


def test_a_circle_of_annotations_is_found() -> None:
    typed = "if TYPE_CHECKING:\n    from lora_sdk.b import B"
    planted = {"lora_sdk.a": typed, "lora_sdk.b": "from lora_sdk.a import A"}
    with pytest.raises(CycleError):
        list(TopologicalSorter(arrows(planted)).static_order())
    late = "def late():\n    from lora_sdk.b import B"
    assert arrows({**planted, "lora_sdk.a": late})["lora_sdk.a"] == set()


def test_the_product_needs_no_other_package() -> None:
    for part, allowed in ALLOWED.items():
        if not part.startswith("lora_"):
            assert not [name for name in allowed if name.startswith("lora_")], part


def test_every_module_lies_in_a_part_that_is_listed() -> None:
    folders = [path.parent for path in SDK.glob("*/*/__init__.py")]
    found = {f"{folder.parent.name}.{folder.name}" for folder in folders}
    rows = {part if part.startswith("lora_") else f"lora_sdk.{part}" for part in ALLOWED}
    flat = {"lora_prefill", "lora_vllm"}  # each one part, its folders included
    assert {name for name in found if name.partition(".")[0] not in flat} == rows - flat
    for package, names in DOORS.items():
        assert {path.name for path in (SDK / package).glob("*.py")} == names


def test_the_host_side_does_not_import_the_sdk() -> None:
    for path in sorted((ROOT / "host" / "lora_host").rglob("*.py")):
        assert "lora_sdk" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("module", ["", ".engine.engine", ".cli.run_command", ".cli.serve"])
def test_the_product_loads_nothing_of_the_laboratory(module: str) -> None:
    loaded = f"[name for name in sys.modules if name.split('.')[0] in {PACKAGES[1:]}]"
    code = f"import lora_sdk{module}, sys; print({loaded})"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "[]"
