"""Adapters while the server runs: loaded from below one folder, unloaded, listed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from lora_host.errors import AdapterError
from lora_sdk.serve.body import Fields
from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.service import Service

MAX_LOADED = 128  # each takes host memory

Name = Annotated[str, Field(min_length=1, max_length=128)]


class LoadBody(Fields):
    """vLLM's request. `lora_path`: below `--adapter-root`, relative to it or absolute."""

    lora_name: Name
    lora_path: Annotated[str, Field(min_length=1, max_length=4096)]


class UnloadBody(Fields):
    """vLLM's request."""

    lora_name: Name


async def load(service: Service, body: LoadBody) -> dict[str, Any]:
    """Read an adapter into host memory. Raises ApiError."""
    engine, name = service.engine, body.lora_name
    root, folder = _folder(service, body.lora_path)
    if name in (*service.settings.names, *service.adapters):
        raise ApiError(400, f"the name {name!r:.140} is taken", param="lora_name")
    if len(service.adapters) >= MAX_LOADED:
        raise ApiError(400, f"{MAX_LOADED} adapters are loaded; unload one", param="lora_name")
    try:
        await asyncio.to_thread(engine.load_adapter, name, folder)
    except AdapterError as error:
        message = str(error).replace(f"{root}/", "").replace(str(root), "")
        raise ApiError(400, message, param="lora_path", code="adapter_error") from None
    finally:
        await service.list_adapters()
    return {"status": "loaded", "lora_name": name}


async def unload(service: Service, body: UnloadBody) -> dict[str, Any]:
    """Forget an adapter that no sequence uses. Raises ApiError."""
    _root(service)
    engine, name = service.engine, body.lora_name
    if name not in service.adapters:
        raise ApiError(404, f"no adapter {name!r:.140} is loaded", param="lora_name")
    try:
        await asyncio.to_thread(engine.unload_adapter, name)
    except AdapterError as error:  # in use, or another client was faster
        raise ApiError(409, str(error), param="lora_name", code="adapter_in_use") from None
    finally:
        await service.list_adapters()
    return {"status": "unloaded", "lora_name": name}


def _root(service: Service) -> Path:
    root = service.settings.adapter_root
    if root is None:
        raise ApiError(
            403, "adapters are fixed; start the server with --adapter-root to change them"
        )
    return Path(root).resolve()


def _folder(service: Service, given: str) -> tuple[Path, Path]:
    """The root and the adapter's folder below it, links followed. ApiError 403 for one outside."""
    root = _root(service)
    if "\0" in given:
        raise ApiError(400, "lora_path holds a zero character", param="lora_path")
    try:
        folder = (root / given).resolve()
        found = folder.is_dir()
    except (OSError, RuntimeError):  # a name that is too long, links in a circle
        folder, found = root, False
    if not folder.is_relative_to(root):
        raise ApiError(403, "lora_path lies outside the adapter root", param="lora_path")
    if not found:
        raise ApiError(404, "lora_path is no folder below the adapter root", param="lora_path")
    return root, folder
