"""lora_cluster: requests over several engines, of this computer or on the nodes of a Ray cluster.

from lora_cluster import Fleet
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_cluster.dispatch.fleet import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> object:
    if name != "Fleet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lora_cluster.dispatch.fleet import Fleet

    return Fleet
