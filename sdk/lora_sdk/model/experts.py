"""Mixtures of experts of families that are LLaMA's otherwise: fields and tensor names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace

from lora_host import abi
from lora_sdk.model.families import llama
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, linear, vector
from lora_sdk.model.spec import ExpertConfig, ModelConfig, SigmoidRouting

PARTS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
EXPERT = re.compile(r"(?P<lead>.+\.experts)\.(?P<number>\d+)\.\w+_proj\.weight")
MIXTRAL_PARTS = {"gate": "w1", "up": "w3", "down": "w2"}


def read_experts(
    fields: Fields,
    layers: Iterable[int],
    renormalize: bool,
    count_names: str | tuple[str, ...],
    count: int,
    chosen: int,
    ffn_name: str,
    ffn: int,
) -> ExpertConfig:
    """The experts of `layers`; `count`, `chosen` and `ffn` are what fields that are absent mean.
    ModelError: a number out of range, more chosen than there are."""
    found = fields.integer(count_names, count, high=abi.MAX_EXPERTS)
    high = min(found, abi.MAX_CHOSEN)
    return ExpertConfig(
        count=found,
        chosen=fields.integer("num_experts_per_tok", chosen, high=high),
        ffn=fields.integer(ffn_name, ffn),
        renormalize=renormalize,
        layers=frozenset(layers),
    )


def read_sigmoid(
    fields: Fields, experts: ExpertConfig, groups: int = 1, taken: int = 1, factor: float = 1.0
) -> ExpertConfig:
    """`experts` with sigmoid routing, its groups and its factor, where absent as given. ModelError:
    experts that the groups do not share evenly, groups of one, too few of them taken for the chosen
    ones."""
    groups, taken = _read_groups(fields, experts, 2, groups, taken)
    factor = fields.number("routed_scaling_factor", factor)
    return replace(experts, sigmoid=SigmoidRouting(groups, taken, factor))


def read_groups(fields: Fields, experts: ExpertConfig) -> ExpertConfig:
    """`experts` chosen by softmax in groups. ModelError as `read_sigmoid`; groups may be of one."""
    groups, taken = _read_groups(fields, experts, 1)
    return replace(experts, groups=groups, taken=taken)


def _read_groups(
    fields: Fields, experts: ExpertConfig, least: int, groups: int = 1, taken: int = 1
) -> tuple[int, int]:
    """Groups of `least` experts or more, and how many of them a row takes."""
    groups = fields.integer("n_group", groups, high=experts.count)
    taken = fields.integer("topk_group", taken, high=groups)
    each = experts.count // groups
    if experts.count % groups or (groups > 1 and each < least):
        expected = f"a number of equal groups of two or more of {experts.count} experts"
        raise fields.error("n_group", groups, expected)
    if taken * each < experts.chosen:
        expected = f"groups of {each} with {experts.chosen} experts or more together"
        raise fields.error("topk_group", taken, expected)
    return groups, taken


def read_shared(
    fields: Fields, experts: ExpertConfig, name: str, default: int, gated: bool
) -> ExpertConfig:
    """`experts` with one of every row, of the inner size in field `name`; without one where it is
    0, which a gated one may not be. ModelError: the size is out of range."""
    shared = fields.integer(name, default, 1 if gated else 0)
    return replace(experts, shared=shared, shared_gate=gated)


def gated_sources(config: ModelConfig) -> dict[str, Source]:
    """Those of the experts, and of a shared one with its gate; of a model without any LLaMA's."""
    if config.experts is None:
        return llama.sources(config)
    found, experts, d = expert_sources(config), config.experts, config.hidden
    for layer in sorted(experts.layers):
        lead, name = f"layers.{layer}.mlp.shared_expert", f"layer.{layer}"
        found[f"{name}.shared_gate"] = linear(f"{lead}_gate.weight", d, 1)
        for part, file in PARTS.items():
            sizes = (experts.shared, d) if part == "down" else (d, experts.shared)
            found[f"{name}.shared.{part}"] = linear(f"{lead}.{file}.weight", *sizes)
    return found


def expert_sources(
    config: ModelConfig, module: str = "mlp", parts: dict[str, str] | None = None
) -> dict[str, Source]:
    """LLaMA's sources, with a router and the matrices of each expert in `module` of the layers that
    have some; `parts`: the file's names of gate, up and down."""
    return llama.sources(config) | chosen_sources(config, module, parts)


def chosen_sources(
    config: ModelConfig, module: str = "mlp", parts: dict[str, str] | None = None
) -> dict[str, Source]:
    """Routers and the matrices of the experts that rows choose."""
    found: dict[str, Source] = {}
    experts, d = config.experts, config.hidden
    if experts is None:
        return found
    for layer in sorted(experts.layers):
        lead, name = f"layers.{layer}.{module}", f"layer.{layer}"
        found[f"{name}.router"] = linear(f"{lead}.gate.weight", d, experts.count)
        for expert in range(experts.count):
            for part, file in (parts or PARTS).items():
                sizes = (experts.ffn, d) if part == "down" else (d, experts.ffn)
                tensor = f"{lead}.experts.{expert}.{file}.weight"
                found[f"{name}.expert.{expert}.{part}"] = linear(tensor, *sizes)
    return found


def routed_sources(config: ModelConfig) -> dict[str, Source]:
    """Routers with the bias of a choice by sigmoids, experts, and those of every row without a
    gate."""
    found, experts = chosen_sources(config), config.experts
    if experts is None:
        return found
    for layer in sorted(experts.layers):
        lead, name = f"layers.{layer}.mlp", f"layer.{layer}"
        if experts.sigmoid is not None:
            bias = vector(f"{lead}.gate.e_score_correction_bias", experts.count)
            found[f"{name}.choice_bias"] = replace(bias, wide=True)
        for part, file in PARTS.items() if experts.shared else ():
            ends = (experts.shared, config.hidden)
            sizes = ends if part == "down" else ends[::-1]
            tensor = f"{lead}.shared_experts.{file}.weight"
            found[f"{name}.shared.{part}"] = linear(tensor, *sizes)
    return found


def stacked_sources(found: dict[str, Source], names: Container[str]) -> dict[str, Source]:
    """`found` where the files, which have tensors of these `names` without their prefix, may hold
    the matrices of a layer's experts in two tensors of all: of each expert gate, then up; down."""
    matches = {name: EXPERT.fullmatch(source.tensor) for name, source in found.items()}
    counts = Counter(match["lead"] for match in matches.values() if match)
    changed = dict(found)
    for name, match in matches.items():
        if match and f"{match['lead']}.down_proj" in names:
            count = counts[match["lead"]] // len(PARTS)
            changed[name] = _stacked(found[name], match["lead"], int(match["number"]), count)
    return changed


def _stacked(source: Source, lead: str, number: int, count: int) -> Source:
    """That of one expert among all `count`."""
    part = source.tensor.split(".")[-2]
    outputs, inputs = source.file_shape
    if part == PARTS["down"]:
        shape = (count, outputs, inputs)
        return Source(f"{lead}.down_proj", "oi", shape, outputs * number, outputs)
    first = 2 * outputs * number + (outputs if part == PARTS["up"] else 0)
    return Source(f"{lead}.gate_up_proj", "oi", (count, 2 * outputs, inputs), first, outputs)
