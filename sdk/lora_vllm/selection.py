"""Which boards: from the environment, since vLLM has no flags for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lora_host.errors import RequestError

if TYPE_CHECKING:
    from lora_sdk.opening.options import EngineOptions

BOARDS, DEVICES, CLUSTER = "LORA_BOARDS", "LORA_DEVICES", "LORA_CLUSTER"
MAX_DIGITS = 9

# Options of lora_sdk that `--additional-config` may set; vLLM decides the others.
PASSED_ON = (
    "adapter_mode", "boards", "daemon_wait", "kernels", "kv", "overlay", "recovery", "spares",
    "stages", "threads",
)  # fmt: skip


def boards_are_named() -> bool:
    """Whether the environment names boards, emulated or not."""
    return any(os.environ.get(name) for name in (BOARDS, DEVICES, CLUSTER))


def named_boards() -> dict[str, Any]:
    """The boards that the environment names, as options. RequestError: what is wrong with them."""
    count, devices, cluster = (os.environ.get(name) for name in (BOARDS, DEVICES, CLUSTER))
    found: dict[str, Any] = {}
    if count:
        if not count.isascii() or not count.isdigit() or len(count) > MAX_DIGITS:
            raise RequestError(f"{BOARDS}={count!r:.40}; expected a number of boards, e.g. 4")
        found["boards"] = int(count)
    if devices:
        uris = tuple(uri.strip() for uri in devices.split(","))
        if not all(uris):
            raise RequestError(
                f"{DEVICES}={devices!r:.60} has an empty name; expected boards with commas between "
                "them, e.g. xrt:0,xrt:1"
            )
        found["devices"] = uris
    if cluster:
        found["cluster_file"] = cluster
    return found


def options_for(model: str, passed_on: Mapping[str, Any], **others: Any) -> EngineOptions:
    """Options of lora_sdk for `model` on the named boards. `passed_on`: vLLM's additional_config.
    RequestError names the option, ModelError the folder."""
    from lora_sdk.opening.options import EngineOptions

    unknown = sorted(set(passed_on) - set(PASSED_ON))
    if unknown:
        raise RequestError(
            f"--additional-config has {unknown[0]!r:.40}; boards know {', '.join(PASSED_ON)}"
        )
    return EngineOptions(model=model, **{**named_boards(), **passed_on, **others})
