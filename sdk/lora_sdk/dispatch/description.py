"""Opens the engines of a `fleet.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_sdk.core.worker_name import parse_worker
from lora_sdk.engine.engine import Engine
from lora_sdk.fleet.description import read_content

DEMO = "demo"  # the model that is shipped


def open_fleet(
    path: Path, options: Mapping[str, Any]
) -> tuple[list[Engine], list[Engine], list[int]]:
    """Workers, clusters, and how many requests each cluster runs at once. `options` of every engine
    come before the file's. RequestError names a field that is wrong; errors of opening an engine
    pass through, and close those before it."""
    content = read_content(path)
    model = content.get("model", DEMO)
    shared = {"model": None if model == DEMO else _folder(path, model), **options}
    workers = [
        _worker(entry.get("prefill", "cpu"))
        for entry in content.get("workers", ())
        for _ in range(entry.get("count", 1))
    ]
    clusters = [
        _cluster(path, entry)
        for entry in content.get("clusters", ())
        for _ in range(entry.get("count", 1))
    ]
    if not workers and not clusters:
        raise RequestError(f"{path}: no workers and no clusters; expected some of either")
    rooms = [
        entry.get("requests", 1)
        for entry in content.get("clusters", ())
        for _ in range(entry.get("count", 1))
    ]
    with ExitStack() as opened:
        engines = [opened.enter_context(Engine(**shared, **own)) for own in workers + clusters]
        opened.pop_all()
    return engines[: len(workers)], engines[len(workers) :], rooms


def _worker(name: str) -> dict[str, Any]:
    """The engine's options of a worker that `prefill` names."""
    worker = parse_worker(name)
    if worker.devices:
        return {"devices": list(worker.devices)}
    return {"boards": worker.boards}


def _cluster(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    devices = entry.get("devices")
    if devices is None:
        return {"boards": entry.get("boards", 1)}
    if entry.get("count", 1) != 1:
        raise RequestError(
            f"{path}: clusters: devices name the boards of one cluster; leave out count"
        )
    if entry.get("boards", len(devices)) != len(devices):
        raise RequestError(
            f"{path}: clusters: {entry['boards']} boards and {len(devices)} devices; expected one "
            "device a board"
        )
    return {"devices": list(devices)}


def _folder(path: Path, model: str) -> Path:
    """A folder that the file names, relative to the file."""
    return path.parent / Path(model).expanduser()
