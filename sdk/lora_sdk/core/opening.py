"""From options to a model on boards: what can be refused is refused before a board is opened."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.core.options import EngineOptions, Progress

if TYPE_CHECKING:
    from pathlib import Path

    from lora_host.cluster import Cluster
    from lora_host.cluster_file import ClusterFile
    from lora_sdk.core.runner import Runner
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


@dataclass(frozen=True)
class OpenedModel:
    """A placed model. Closing `stack` gives the boards and the files back."""

    config: ModelConfig
    plan: Plan
    cluster: Cluster
    runner: Runner
    stack: ExitStack


def connected(path: Path, boards: int) -> ClusterFile:
    """The cluster file's boards that a ring or path of so many connects. RequestError when the file
    has fewer, LinkError when no path of them is so long."""
    from lora_host.cluster_file import load_cluster
    from lora_sdk.plan.topology import route

    file = load_cluster(path)
    if boards > len(file.boards):
        raise RequestError(f"{path}: {len(file.boards)} boards found, {boards} asked for")
    return file.only(route(file.cables, boards).order)


def open_model(options: EngineOptions, progress: Progress | None) -> OpenedModel:
    """Plan, open the boards, place the weights. Errors of every layer pass through."""
    from lora_host.cluster import Cluster
    from lora_host.cluster_file import ring
    from lora_host.overlay import load_overlay
    from lora_sdk.core.runner import Runner
    from lora_sdk.model.checkpoint import Checkpoint
    from lora_sdk.model.config import load_config
    from lora_sdk.model.quantization import with_kv_cache
    from lora_sdk.plan.overlay_choice import choose_overlay
    from lora_sdk.plan.placement import make_plan
    from lora_sdk.plan.topology import route

    config = with_kv_cache(load_config(options.model), options.kv_kind)
    overlay = load_overlay(options.overlay or choose_overlay(config, options.board))
    file = connected(options.cluster_file, options.boards) if options.cluster_file else None
    cables = file.cables if file is not None else ring(options.boards)
    plan = make_plan(
        config,
        overlay,
        overlay.board,
        options.boards,
        context=options.context,
        sequences=options.max_sequences,
        route=route(cables, options.boards),
        hidden_taps=options.hidden_layers,
        adapters=options.adapters,
    )
    checkpoint = Checkpoint.open(options.model, config)
    stack = ExitStack()
    try:
        cluster = stack.enter_context(
            Cluster.open(
                boards=options.boards,
                devices=options.devices,
                cluster_file=file,
                overlay=overlay,
                kernels=options.kernels,
                trace=options.trace,
                threads=options.threads,
            )
        )
        runner = Runner(cluster, config, checkpoint, plan, progress, options.threads)
    except BaseException:
        stack.close()
        raise
    return OpenedModel(config, plan, cluster, runner, stack)
