"""Containers that hold the control without units and links (docs/vendor_build.md)."""

from __future__ import annotations

from collections.abc import Collection

from .errors import OverlayError

CONTROL_KERNEL = "lora_ctrl"
LINK_KERNELS = ("aurora_flow_0", "aurora_flow_1")


def refuse_control_alone(kernels: Collection[str], name: str) -> None:
    """OverlayError for the container `name` if its kernels are those of `KERNEL=control`."""
    if CONTROL_KERNEL in kernels and not set(LINK_KERNELS) & set(kernels):
        raise OverlayError(
            f"{name}: holds {CONTROL_KERNEL} without link cores, as KERNEL=control builds it for a "
            "lab's own tools: it has no units, so no model runs on it; take a build of KERNEL=card"
        )
