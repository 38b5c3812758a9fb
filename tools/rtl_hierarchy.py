"""What modules and packages of overlays/rtl use, by the text of their source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

# A package, and a module where it is instantiated.
_USES = re.compile(r"\b(\w+)::|^\s*(\w+)\s+(?:#\s*\(|\w+\s*\()", re.MULTILINE)


def used_names(text: str) -> set[str]:
    """Packages and modules that a source file uses, with some words that are neither."""
    found = _USES.findall(re.sub(r"//[^\n]*", "", text))
    return {package or module for package, module in found}


def instances(files: Iterable[Path]) -> dict[str, set[str]]:
    """Modules that each module instantiates. A file has the name of the module in it."""
    texts = {path.stem: path.read_text() for path in files}
    modules = {name for name, text in texts.items() if re.search(r"^module ", text, re.MULTILINE)}
    return {name: (used_names(texts[name]) & modules) - {name} for name in sorted(modules)}


def uncounted(
    below: Mapping[str, set[str]], top: str, counted: Mapping[str, set[str]], wires: set[str]
) -> set[str]:
    """Modules in `top` that are neither counted, nor inside a counted one, nor `wires`. `counted`:
    modules, each with those inside it that are not counted with it."""
    missing: set[str] = set()
    seen: set[str] = set()
    left = [top]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in counted:
            left.extend(counted[name])
            continue
        if name not in wires:
            missing.add(name)
        left.extend(below[name])
    return missing
