"""Building from the checkout's sources."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.processes import ROOT


def checkout_build() -> ModuleType:
    """The checkout's ffi_build: an installed copy has no C sources beside it."""
    spec = importlib.util.spec_from_file_location(
        "checkout_ffi_build", ROOT / "host" / "lora_host" / "ffi_build.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
