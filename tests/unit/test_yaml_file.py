"""The YAML that is read: JSON's values, bounded; everything else is refused by line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lora_host.errors import OverlayError
from lora_host.yaml_file import MAX_BYTES, MAX_DEPTH, MAX_VALUES, YamlFault, parse_yaml, read_yaml

ROOT = Path(__file__).resolve().parents[2]
INFINITY = float("inf")
BOMB = "a0: &a0 [1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 50))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing", None),
        ("a: 1", {"a": 1}),
        ("a: [-0, +7, 0x1F, 'x', \"1\", ~, null, true, false]",
         {"a": [0, 7, 31, "x", "1", None, None, True, False]}),
        ("a: 460.0e+9\nb: .5\nc: 1e3\nd: 1.", {"a": 460e9, "b": ".5", "c": 1e3, "d": 1.0}),
        ("a: 2020-13-45\nb: 12:61:61\nc: yes\nd: 010", {"a": "2020-13-45", "b": "12:61:61",
                                                        "c": "yes", "d": "010"}),
        ("'1': |\n  two\n  lines\n", {"1": "two\nlines\n"}),
        ("a: " + "9" * 41, {"a": "9" * 41}),
        ("a: 0x" + "f" * 33, {"a": "0x" + "f" * 33}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: .inf\nb: -.INF\nc: 1e999", {"a": INFINITY, "b": -INFINITY, "c": INFINITY}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, yaml.safe_load("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
    ],
)  # fmt: skip
def test_what_is_read(text: str, value: object) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1, 2", r"line 1, column 9: expected ',' or '\]'"),
        ("a: *x", r"line 1, column 4: alias 'x' of no value before it"),
        ("&a [*a]", r"line 1, column 5: alias 'a' of no value"),
        (BOMB, rf"more than {MAX_VALUES} values"),
        (CHAIN, rf"line \d+, column \d+: nested deeper than {MAX_DEPTH}"),
        ("a: !!int x", r"line 1, column 4: tags are not read"),
        ("!!python/object/apply:os.getcwd []", r"line 1, column 1: tags are not read"),
        ("a: 1\na: 2", r"line 2, column 1: key 'a' appears twice"),
        ("1: a", r"line 1, column 1: key '1' found, text expected"),
        ("? [a]\n: b", r"key \"\['a'\]\" found, text expected"),
        ("a\n---\nb", r"line 2, column 1: a second document"),
        ("[" * (MAX_DEPTH + 2), rf"line 1, column {MAX_DEPTH + 2}: nested deeper than {MAX_DEPTH}"),
        ("{a: " * 20_000, r"nested deeper"),
        ("%YAML " + "9" * 5000 + ".1\n--- a", r"number out of range: Exceeds"),
        ('"\\UFFFFFFFF"', r"number out of range: Python int"),
        ("a: \0", r"character 3: special characters are not allowed"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(YamlFault, match=says):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"a: " + b"9" * MAX_BYTES,
            rf"x\.yaml: cannot be read: is larger than .* {MAX_BYTES} B",
        ),
        (b"\xff", r"x\.yaml: cannot be read: not UTF-8 text"),
        (b"a: *b", r"x\.yaml: not YAML: line 1, column 4: alias"),
    ],
)
def test_a_file_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(OverlayError, match=says):
        read_yaml(path, OverlayError)
    with pytest.raises(OverlayError, match="cannot be read: is a folder; expected"):
        read_yaml(tmp_path, OverlayError)


def test_shipped_files_mean_what_yaml_says() -> None:
    folders = ("boards", "overlays", "tests/topologies", "sdk/lora_lab/timing/data")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.yaml"))]
    assert len(files) > 15
    for path in files:
        assert read_yaml(path, OverlayError) == yaml.safe_load(path.read_text()), path
