"""What a fleet reaches when requests always wait, without simulating: cards' time shared out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lora_lab.fleet.description import FleetModel, Load
from lora_lab.fleet.service import Cluster, Worker


@dataclass(frozen=True)
class Split:
    """A number of workers and of clusters, with what they reach together."""

    workers: int
    clusters: int
    tokens_per_second: float
    dollars: float | None


def requests_per_second(
    workers: Sequence[Worker], clusters: Sequence[Cluster], load: Load
) -> float:
    """Requests a second. Workers prefill for all clusters and decode in the time that is left;
    clusters alone do both."""
    prompt, response = load.prompt, load.response
    decode = [cluster.decode(prompt, response) for cluster in clusters]
    if not workers:
        each = zip(clusters, decode, strict=True)
        return sum(1 / (cluster.prefill(prompt) + seconds) for cluster, seconds in each)
    wanted, found = sum(1 / seconds for seconds in decode), 0.0
    # the worker that gains least by decoding itself prefills first
    order = sorted(workers, key=lambda one: one.prefill(prompt) / one.decode(prompt, response))
    for worker in order:
        prefill = worker.prefill(prompt)
        given = min(wanted, 1 / prefill)
        wanted -= given
        own = (1 - given * prefill) / (prefill + worker.decode(prompt, response))
        found += given + max(0.0, own)
    return found


def fleet_capacity(fleet: FleetModel) -> float:
    """New tokens a second of the whole fleet."""
    load = fleet.load
    return load.response * requests_per_second(fleet.workers, fleet.clusters, load)


def splits(fleet: FleetModel) -> list[Split]:
    """All ways to have as many cards as the fleet's, of its first kind of worker and its first kind
    of cluster. Empty if it has only one of them."""
    if not fleet.workers or not fleet.clusters:
        return []
    cards = len(fleet.workers) + len(fleet.clusters)
    found = []
    for count in range(cards + 1):
        one = replace(
            fleet,
            workers=fleet.workers[:1] * count,
            clusters=fleet.clusters[:1] * (cards - count),
        )
        found.append(Split(count, cards - count, fleet_capacity(one), one.dollars))
    return found
