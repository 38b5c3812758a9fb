"""Extracts the signatures that lora_host.routes uses from pynq's source:

    python -m tools.route_signatures pynq-3.0.1.tar.gz > tests/data/pynq_signatures.json

The file is the sdist from PyPI (pip download pynq==3.0.1 --no-deps --no-binary pynq)."""

from __future__ import annotations

import ast
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

PYNQ = {  # class or "" -> names in a file of the package
    "pynq/overlay.py": {"Overlay": ("__init__", "free")},
    "pynq/buffer.py": {
        "": ("allocate",),
        "PynqBuffer": ("sync_to_device", "sync_from_device", "freebuffer"),
    },
    "pynq/pl_server/xrt_device.py": {"XrtDevice": ("get_memory_by_name", "name")},
    "pynq/pl_server/device.py": {"DeviceMeta": ("devices",)},
}


def parameters(node: ast.FunctionDef) -> dict[str, Any]:
    """Positional parameters, the number with defaults, and whether it is a property or takes **."""
    properties = [d for d in node.decorator_list if isinstance(d, ast.Name) and d.id == "property"]
    return {
        "parameters": [argument.arg for argument in node.args.args],
        "defaults": len(node.args.defaults),
        "keywords": node.args.kwarg is not None,
        "property": bool(properties),
    }


def pynq_signatures(sdist: Path) -> dict[str, Any]:
    """Signatures by "Class.name", or by name for functions."""
    found: dict[str, Any] = {}
    with tarfile.open(sdist) as archive:
        root = archive.getnames()[0].split("/")[0]
        for file, classes in PYNQ.items():
            stream = archive.extractfile(f"{root}/{file}")
            assert stream is not None, file
            tree = ast.parse(stream.read())
            for owner, names in classes.items():
                scopes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner]
                body = scopes[0].body if owner else tree.body
                for node in body:
                    if isinstance(node, ast.FunctionDef) and node.name in names:
                        found[f"{owner}.{node.name}".lstrip(".")] = parameters(node)
    return {"version": root, "functions": found}


def main() -> None:
    """Prints the table."""
    table = pynq_signatures(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
