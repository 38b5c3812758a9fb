"""The report of `lora lab model --fleet`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from lora_host.naming import counted
from lora_lab.fleet.capacity import Split, fleet_capacity, splits
from lora_lab.fleet.description import FleetModel
from lora_lab.fleet.service import exposed_transfer
from lora_lab.fleet.simulation import Outcome, Simulation

YEARS = 3  # over which a card's price is spread
_YEAR = 365 * 24 * 3600.0
_PROMPTS = (128, 256, 512, 1024, 1536, 2048)
NOTES = (
    "batch 1 on every card; GPUs as GLITCHES quotes them, other lengths scaled",
    "hand-over: both hops at the transfer rate, ahead of an idle cluster where it was computed "
    "before; boards have room for one sequence more than they compute",
    "cards' time shared out: what the cards reach where each is always busy and requests are "
    "divided among them to the fraction; the throughput is of requests simulated one by one",
    "left out: idle power, hosts, sampling, network, energy of transfers",
)


def report(
    fleet: FleetModel, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """The fleet's figures; all modelled, times in seconds. `progress` as for Simulation."""
    outcome = Simulation(fleet, progress=progress).run()
    rate = _rate(fleet, outcome)
    tokens = fleet.load.requests * fleet.load.response
    on_workers = sum(one.emitted for one in outcome.requests)
    return {
        "label": "modelled",
        "model": fleet.name,
        "prompt": fleet.load.prompt,
        "response": fleet.load.response,
        "workers": [worker.name for worker in fleet.workers],
        "clusters": [cluster.name for cluster in fleet.clusters],
        "boards": [f"{one.target.boards} x {one.target.board}" for one in fleet.clusters],
        "requests": fleet.load.requests,
        "per_second": fleet.load.per_second,
        "tokens_per_second": rate,
        "capacity_tokens_per_second": fleet_capacity(fleet),
        **_latencies(fleet, outcome),
        "share_decoded_by_workers": on_workers / tokens,
        "joules_per_token": outcome.joules / tokens,
        **_prices(fleet, rate),
        "splits": [_split(one) for one in splits(fleet)],
        "transfers": _transfers(fleet),
        "notes": [*NOTES, *_of_designs(fleet)],
    }


def _of_designs(fleet: FleetModel) -> list[str]:
    """What is to be known of each kind of cluster."""
    targets = {one.name: one.target for one in fleet.clusters}
    return [f"{name}: {n}" for name, one in targets.items() for n in one.notes if n != "modelled"]


def _rate(fleet: FleetModel, outcome: Outcome) -> float:
    """New tokens a second: with arrivals over the whole run, else while there was more to do."""
    end = max(one.finished for one in outcome.requests)
    if fleet.load.per_second is None:
        end = outcome.drained or end
    shares = (
        count * min(1.0, max(0.0, end - first) / (last - first))
        for first, last, count in outcome.emissions
    )
    return sum(shares) / end


def _latencies(fleet: FleetModel, outcome: Outcome) -> dict[str, float | None]:
    """Medians and p99 of the time to the first token and of the mean time of the next ones; None
    where a request always waits, since they only tell how long the queue is then."""
    first = [one.prefilled - one.arrived for one in outcome.requests]
    after = [(one.finished - one.prefilled) / fleet.load.response for one in outcome.requests]
    values = [median(first), _p99(first), median(after), _p99(after)]
    names = ("first_token", "first_token_p99", "next_token", "next_token_p99")
    known = fleet.load.per_second is not None
    return {name: one if known else None for name, one in zip(names, values, strict=True)}


def _prices(fleet: FleetModel, rate: float) -> dict[str, float | None]:
    if fleet.dollars is None:
        return {"tokens_per_second_per_dollar": None, "dollars_per_million_tokens": None}
    return {
        "tokens_per_second_per_dollar": rate / fleet.dollars,
        "dollars_per_million_tokens": 1e6 * fleet.dollars / (rate * YEARS * _YEAR),
    }


def _split(one: Split) -> dict[str, float | None]:
    price = one.dollars
    return {
        "workers": one.workers,
        "clusters": one.clusters,
        "tokens_per_second": one.tokens_per_second,
        "tokens_per_second_per_dollar": None if price is None else one.tokens_per_second / price,
    }


def _transfers(fleet: FleetModel) -> list[dict[str, float]]:
    """Prompt's computation beside the hand-over of its K and V (GLITCHES, Figure 8)."""
    if not fleet.workers or not fleet.clusters:
        return []
    worker, cluster, layers = fleet.workers[0], fleet.clusters[0], fleet.config.layers
    found = []
    for prompt in sorted({*_PROMPTS, fleet.load.prompt}):
        total = 2 * prompt * cluster.kv_bytes / fleet.transfer_bytes_per_second
        prefill = worker.prefill(prompt)
        exposed = exposed_transfer(prefill, layers, total / layers)
        found.append({"prompt": prompt, "prefill": prefill, "transfer": total, "exposed": exposed})
    return found


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def text(found: dict[str, Any]) -> str:
    """The report as text."""
    workers = found["workers"]
    named = zip(found["clusters"], found["boards"], strict=True)
    clusters = [f"{design} on {boards}" for design, boards in named]
    rate = found["per_second"]
    load = "one always waiting" if rate is None else f"{rate:g} a second"
    lines = [
        f"modelled: {_several(workers)} and {_several(clusters)}, {found['model']}, "
        f"{counted(found['requests'], 'request')} of {found['prompt']} + {found['response']} "
        f"tokens, {load}",
        f"  {'throughput':<28}{found['tokens_per_second']:.1f} tokens/s (cards' time shared out: "
        f"{found['capacity_tokens_per_second']:.1f})",
        f"  {'decoded by workers':<28}{found['share_decoded_by_workers']:.1%}",
        f"  {'energy':<28}{found['joules_per_token']:.2f} J/token",
    ]
    if found["first_token"] is not None:
        lines += [
            f"  {'first token':<28}{found['first_token']:.3f} s, p99 "
            f"{found['first_token_p99']:.3f}",
            f"  {'next token, mean':<28}{1e3 * found['next_token']:.2f} ms, p99 "
            f"{1e3 * found['next_token_p99']:.2f}",
        ]
    if found["dollars_per_million_tokens"] is not None:
        lines += [
            f"  {'cost efficiency':<28}{found['tokens_per_second_per_dollar']:.3g} tokens/s/$",
            f"  {f'cards over {YEARS} years':<28}"
            f"{found['dollars_per_million_tokens']:.2f} $ per million tokens",
        ]
    if found["splits"]:
        lines.append("  workers + clusters, tokens/s, tokens/s/$ (cards' time shared out)")
    for one in found["splits"]:
        price = one["tokens_per_second_per_dollar"]
        shown = "" if price is None else f"{price:12.3g}"
        lines.append(
            f"  {one['workers']:>7} + {one['clusters']:<8}{one['tokens_per_second']:9.1f}{shown}"
        )
    if found["transfers"]:
        lines.append("  prompt, its computation, hand-over of K and V, what of it shows (ms)")
    for one in found["transfers"]:
        times = "".join(f"{1e3 * one[name]:10.1f}" for name in ("prefill", "transfer", "exposed"))
        lines.append(f"  {one['prompt']:>6}{times}")
    return "\n".join([*lines, *(f"  note: {note}" for note in found["notes"])])


def _several(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "nothing"
