"""Emulated boards have simulated controls, in a process of its own that imports this first (pytest:
-p tests.rtl.simulated_boards). LORA_TEST_MODULE names the module that boards_build has built."""

from __future__ import annotations

import importlib.util
import os
import sys

NAME = "lora_host._lora"


def use(path: str) -> None:
    """The module at `path` as lora_host's."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


use(os.environ["LORA_TEST_MODULE"])
