"""Packages beside this one that it asks for by name, where they are, and runs without."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from lora_host.errors import RequestError


def optional_module(name: str) -> ModuleType | None:
    """The module `name`, None where its package is not installed."""
    if find_spec(name.partition(".")[0]) is None:
        return None
    return importlib.import_module(name)


def required_module(name: str, wanted: str) -> ModuleType:
    """The module `name`. RequestError where its package is not installed; `wanted`: what needs
    it."""
    module = optional_module(name)
    if module is None:
        package = name.partition(".")[0]
        raise RequestError(f"{wanted} needs the package {package}, which is not installed here")
    return module
