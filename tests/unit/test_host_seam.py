"""Above transport.h nothing knows which transport runs; C is built without what changes bits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout_build import checkout_build

ROOT = Path(__file__).parents[2]


ffi_build = checkout_build()
ABOVE = [path for path in sorted((ROOT / "csrc" / "src").glob("*.[ch]")) if path.name != "uri.c"]


SCHEMES = sorted(
    match[1]
    for path in (ROOT / "csrc" / "transports").glob("*/transport_*.c")
    for match in re.finditer(r'\.scheme = "(\w+)"', path.read_text())
)
# What serves a runtime, by its own name; everything else in the host's Python is above the seam.
BELOW = {"lab", "routes", "device_process", "vrtd_mock", "boardd"}
NAMING = {"device_uri.py", "xrt_environment.py"}  # URIs and their schemes; an environment
STARTING = {"places.py", "vrtd_holder.py"}  # runtimes that a campaign kills, or fills


def code_of(path: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("path", ABOVE, ids=lambda path: path.name)
def test_the_host_library_knows_no_transport(path: Path) -> None:
    assert not re.search(r"\bemu|lora_emu|transport_emu|\bxrt|\bvrtd|\bslash_", code_of(path))
    assert not re.search(rf'"({"|".join(SCHEMES)})\b', code_of(path))
    assert not re.search(r"\b(printf|puts|fprintf|abort|exit)\s*\(", code_of(path))


def test_every_transport_fills_the_same_table() -> None:
    """One table a scheme, and all of them in the one list that turns a URI into one."""
    assert SCHEMES == ["emu", "slash", "tcp", "unix", "xrt"]
    listed = code_of(ROOT / "csrc" / "src" / "uri.c")
    assert sorted(re.findall(r"&lora_transport_(\w+)", listed)) == SCHEMES
    table = code_of(ROOT / "csrc" / "include" / "lora" / "transport.h")
    fields = re.findall(r"\(\*(\w+)\)\(", table)
    assert len(fields) >= 14
    for scheme in SCHEMES:
        (path,) = (ROOT / "csrc" / "transports").glob(f"*/transport_{scheme}.c")
        text = path.read_text()
        if "REMOTE_CALLS" in text:
            text += (path.parent / "transport_remote.h").read_text()
        filled = set(re.findall(r"\s\.(\w+) = ", text))
        assert filled >= set(fields), f"{scheme}: {set(fields) - filled}"


def decisions(path: Path) -> Iterator[ast.expr]:
    """Every comparison and every question about the beginning of a text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("startswith", "removeprefix", "get")
        ):
            yield node


def names_a_scheme(node: ast.AST) -> bool:
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return any(
        isinstance(text, str) and text.partition(":")[0] in SCHEMES and text != "" for text in texts
    )


def test_no_python_above_the_seam_asks_which_transport_runs() -> None:
    host, sdk = ROOT / "host" / "lora_host", ROOT / "sdk"
    above = [
        *sdk.rglob("*.py"),
        *(
            path
            for path in host.rglob("*.py")
            if path.relative_to(host).parts[0] not in BELOW and path.name not in NAMING
        ),
    ]
    assert len(above) > 100
    found = [
        f"{path}:{node.lineno}"
        for path in above
        for node in decisions(path)
        if names_a_scheme(node)
    ]
    assert not found
    runtimes = re.compile(r"\b(import|from)\b.*\b(pyxrt|pynq|vrtd_mock|device_process)\b")
    found_in = [path for path in above if runtimes.search(path.read_text())]
    assert set(found_in) == {sdk / "lora_lab" / "torture" / "host" / name for name in STARTING}


def test_the_check_of_decisions_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = 1 if uri.startswith("xrt:") else 2\ny = scheme == "slash"\nz = a == "b"\n')
    assert sorted(node.lineno for node in decisions(path) if names_a_scheme(node)) == [1, 2]


def test_nothing_in_the_sdk_decides_by_emulation() -> None:
    sdk = ROOT / "sdk" / "lora_sdk"
    for path in sdk.rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not re.match(r"\s*(if|elif|while|assert)\b.*emulated", line), f"{path}:{number}"


def test_arrows_point_down() -> None:
    """sdk -> host -> csrc: the host package knows nothing of the SDK, nor C of Python."""
    below = [
        *(ROOT / "host" / "lora_host").rglob("*.py"),
        *(path for path in (ROOT / "csrc").rglob("*.[ch]")),
        *(ROOT / "firmware").rglob("*.[ch]"),
    ]
    assert len(below) > 50
    assert not [path for path in below if "lora_sdk" in path.read_text(encoding="utf-8")]


def test_the_build_leaves_sums_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi_build, "ROOT", ROOT)
    flags = " ".join(ffi_build.FLAGS)
    assert "-ffp-contract=off" in flags and "-std=c11" in flags
    assert not re.search(r"-ffast-math|-Ofast|-march=|-mfma|-funsafe", flags)
    sources = {path.name for path in ffi_build.source_files()}
    assert "hal_host.c" in sources and "hal_card.c" not in sources


def test_the_cdef_is_the_headers_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi_build, "ROOT", ROOT)  # an installed package has no C sources
    text = ffi_build.cdef_text(native=True)
    assert "#define LORA_BLOCK_K 128" in text and "struct lora_row {" in text
    assert "lora_kernels_native" in text and "#include" not in text and "#ifndef" not in text
