"""`fleet.yaml`: GPUs, clusters of boards, a model and a load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lora_cluster.dispatch.description import read_content
from lora_host.errors import LoraError, RequestError
from lora_host.overlay import overlay_names
from lora_lab.fleet.service import Cluster, Worker
from lora_lab.timing.gpus import gpu
from lora_lab.timing.prices import prices
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import find_config
from lora_sdk.plan.partition import check_board_count

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

T = TypeVar("T")
GIGABYTES_PER_SECOND = 12.0  # of each hop, GPU to host and host to board: assumed, PCIe 3.0 x16


@dataclass(frozen=True)
class Load:
    """Requests that are all of one kind. `per_second`: mean of Poisson arrivals, None if a request
    always waits."""

    prompt: int
    response: int
    requests: int = 500
    per_second: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class FleetModel:
    """What is simulated. Each worker and each cluster is one entry."""

    name: str
    config: ModelConfig
    workers: tuple[Worker, ...]
    clusters: tuple[Cluster, ...]
    load: Load
    transfer_bytes_per_second: float = field(default=GIGABYTES_PER_SECOND * 1e9)

    @property
    def dollars(self) -> float | None:
        """The price of all cards; None where one is not known."""
        prices = [one.dollars for one in self.workers] + [one.dollars for one in self.clusters]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None


def read_fleet(path: Path) -> FleetModel:
    """The file's fleet. RequestError names a field that is wrong, and what is not known."""
    content = read_content(path)
    try:
        return _fleet(content)
    except LoraError as error:
        raise RequestError(f"{path}: {error}", usage=False) from None
    except OSError as error:  # a model's name that no file can have
        raise RequestError(f"{path}: {error.strerror}", usage=False) from None


def _fleet(content: dict[str, Any]) -> FleetModel:
    _require(content, "the file", "model", "load")
    config = find_config(content["model"])
    for index, entry in enumerate(content.get("workers", ())):
        _require(entry, f"workers.{index}", "gpu")
    for index, entry in enumerate(content.get("clusters", ())):
        _require(entry, f"clusters.{index}", "design")
    workers: list[Worker] = _entries(
        content, "workers", lambda entry: Worker(gpu(entry["gpu"]), config)
    )
    clusters: list[Cluster] = _entries(content, "clusters", lambda entry: _cluster(entry, config))
    if not workers and not clusters:
        raise RequestError("no workers and no clusters; expected some of either")
    rate = content.get("transfer", {}).get("gigabytes_per_second", GIGABYTES_PER_SECOND)
    load = Load(**content["load"])
    _check(config, load)
    return FleetModel(content["model"], config, tuple(workers), tuple(clusters), load, rate * 1e9)


def _entries(content: dict[str, Any], kind: str, made: Callable[[dict[str, Any]], T]) -> list[T]:
    """What is made of all entries of a kind, as often as `count` says."""
    found: list[T] = []
    for index, entry in enumerate(content.get(kind, ())):
        try:
            found += [made(entry)] * entry.get("count", 1)
        except LoraError as error:
            raise RequestError(f"{kind}.{index}: {error}") from None
    return found


def _require(entry: dict[str, Any], where: str, *names: str) -> None:
    for name in names:
        if name not in entry:
            raise RequestError(f"{where} has no {name!r}, which the model of a fleet needs")


def _cluster(entry: dict[str, Any], config: ModelConfig) -> Cluster:
    boards = entry.get("boards", 1)
    if entry["design"] in overlay_names():
        raise RequestError(
            f"{entry['design']} is an emulated overlay; expected a design, as lora lab model "
            "--list names them first"
        )
    check_board_count(boards)
    target = make_target(entry["design"], entry.get("board"), config, boards)
    price = entry.get("dollars", prices().boards.get(target.board))
    return Cluster(target, config, None if price is None else boards * price)


def _check(config: ModelConfig, load: Load) -> None:
    positions = load.prompt + load.response
    if positions > config.positions:
        raise RequestError(
            f"load: {load.prompt} + {load.response} tokens, {positions - config.positions} "
            f"more than the model's context of {config.positions}"
        )
