"""Opens the engines of a `fleet.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lora_host.errors import LoraError, RequestError
from lora_host.schema import read_checked
from lora_sdk.engine.engine import Engine
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.worker_name import parse_worker

_SCHEMA = Path(__file__).with_name("fleet.schema.json")
DEMO = "demo"  # the model that is shipped

Entry = Mapping[str, Any]


def read_content(path: Path) -> dict[str, Any]:
    """A fleet.yaml by its schema. RequestError names a field that is wrong."""
    return read_checked(path, _SCHEMA, RequestError)


def open_fleet(
    path: Path, options: Mapping[str, Any]
) -> tuple[list[Engine], list[Engine], list[int]]:
    """Workers, clusters, and how many requests each cluster runs at once. `options` of every engine
    come before the file's. RequestError names a field that is wrong; errors of opening an engine
    pass through, and close those before it."""
    content = read_content(path)
    model = content.get("model", DEMO)
    shared = {"model": None if model == DEMO else _folder(path, model), **options}
    workers = _entries(path, content, "workers", _worker)
    clusters = _entries(path, content, "clusters", _cluster)
    if not workers and not clusters:
        raise RequestError(
            f"{path}: no workers and no clusters; expected some of either", usage=False
        )
    rooms = [
        entry.get("requests", 1)
        for entry in content.get("clusters", ())
        for _ in range(entry.get("count", 1))
    ]
    with ExitStack() as opened:
        engines = [opened.enter_context(Engine(**shared, **own)) for own in workers + clusters]
        opened.pop_all()
    return engines[: len(workers)], engines[len(workers) :], rooms


def _entries(
    path: Path, content: Entry, kind: str, options_of: Callable[[Entry], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The engines' options of all entries of a kind."""
    found: list[dict[str, Any]] = []
    for index, entry in enumerate(content.get(kind, ())):
        try:
            own = options_of(entry) | _overlay(path, entry)
            EngineOptions(**own)  # checks them without opening a board
        except LoraError as error:
            raise RequestError(f"{path}: {kind}.{index}: {error}", usage=False) from None
        found += [own] * entry.get("count", 1)
    return found


def _worker(entry: Entry) -> dict[str, Any]:
    if "prefill" not in entry and "gpu" in entry:
        raise RequestError(
            f"gpu {entry['gpu']!r} is for lora lab model --fleet alone; name what computes "
            "prompts here: prefill: cpu, boards:N or cuda:N"
        )
    if entry.get("prefill_mode") == "fast":
        fast = parse_worker(entry.get("prefill", "cpu"), fast=True)
        if fast.socket is not None:
            raise RequestError(f"prefill {fast.text!r} is for lora serve; use cpu or cuda:N here")
        return {"boards": 1, "prefill": fast.text, "prefill_mode": "fast"}
    worker = parse_worker(entry.get("prefill", "cpu"))
    if worker.device is not None:
        return {"boards": 1, "prefill": worker.text}
    if worker.devices:
        return {"devices": list(worker.devices)}
    return {"boards": worker.boards}


def _cluster(entry: Entry) -> dict[str, Any]:
    devices = entry.get("devices")
    if devices is None:
        boards = entry.get("boards", 1)
        if "board" in entry:
            return {"devices": [f"emu:{entry['board']}"] * boards}
        return {"boards": boards}
    if entry.get("count", 1) != 1:
        raise RequestError("devices name the boards of one cluster; leave out count")
    if entry.get("boards", len(devices)) != len(devices):
        raise RequestError(
            f"boards is {entry['boards']}, devices name {len(devices)}; expected one device a board"
        )
    return {"devices": list(devices)}


def _overlay(path: Path, entry: Entry) -> dict[str, str]:
    """By its name, or a folder."""
    overlay = entry.get("overlay")
    if overlay is None:
        return {}
    return {"overlay": str(_folder(path, overlay)) if "/" in overlay else overlay}


def _folder(path: Path, name: str) -> Path:
    """A folder that the file names, relative to the file."""
    return path.parent / Path(name).expanduser()
