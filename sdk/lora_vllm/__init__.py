"""A vLLM server on boards: the platform plug-in (docs/vllm.md).

vLLM finds `register` in the entry point group `vllm.platform_plugins` and asks it for the class of
the platform. Nothing here imports vLLM before it does so itself."""

from __future__ import annotations

from lora_vllm.selection import boards_are_named

PLATFORM = "lora_vllm.platform.LoraPlatform"


def register() -> str | None:
    """The platform's class where the environment names boards; None leaves vLLM as it is."""
    return PLATFORM if boards_are_named() else None
