"""From options to a model on boards. All checks that need no board come before boards open."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.core.options import EngineOptions

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_host.cluster_file import ClusterFile
    from lora_sdk.core.runner import Runner
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


@dataclass(frozen=True)
class PlannedModel:
    """A model's placement, and the cluster file's boards for it (None: emulated boards)."""

    config: ModelConfig
    plan: Plan
    cluster_file: ClusterFile | None


@dataclass(frozen=True)
class OpenedModel:
    """A placed model. Closing `stack` releases the boards and files."""

    config: ModelConfig
    plan: Plan
    cluster: Cluster
    runner: Runner
    stack: ExitStack


def connected(path: Path, boards: int) -> ClusterFile:
    """`boards` boards of the cluster file that form a ring or path. RequestError if the file has
    fewer boards, LinkError if no path has that many."""
    from lora_host.cluster_file import load_cluster
    from lora_sdk.plan.topology import route

    file = load_cluster(path)
    if boards > len(file.boards):
        raise RequestError(f"{path}: {len(file.boards)} boards found, {boards} requested")
    return file.only(route(file.cables, boards).order)


def plan_model(options: EngineOptions) -> PlannedModel:
    """The model's placement. Reads only its configuration. Errors of every layer pass through."""
    from lora_host.cluster_file import ring
    from lora_host.overlay import load_overlay
    from lora_sdk.model.config import load_config
    from lora_sdk.model.quantization import with_kv_cache
    from lora_sdk.plan.overlay_choice import choose_overlay
    from lora_sdk.plan.placement import make_plan
    from lora_sdk.plan.topology import route

    boards = options.board_count
    config = with_kv_cache(load_config(options.folder), options.kv_kind)
    overlay = load_overlay(options.overlay or choose_overlay(config, options.board_kind))
    file = connected(Path(options.cluster_file), boards) if options.cluster_file else None
    plan = make_plan(
        config,
        overlay,
        overlay.board,
        boards,
        context=options.context,
        sequences=options.max_sequences,
        route=route(file.cables if file is not None else ring(boards), boards),
        hidden_taps=tuple(options.hidden_layers),
        adapters=options.adapters,
    )
    return PlannedModel(config, plan, file)


def open_model(options: EngineOptions) -> OpenedModel:
    """Plan, open the boards, place the weights. Errors of every layer pass through."""
    from lora_host.cluster import Cluster
    from lora_sdk.core.runner import Runner
    from lora_sdk.model.checkpoint import Checkpoint

    planned = plan_model(options)
    config, plan = planned.config, planned.plan
    checkpoint = Checkpoint.open(options.folder, config)
    stack = ExitStack()
    try:
        cluster = stack.enter_context(
            Cluster.open(
                boards=options.board_count,
                devices=options.devices,
                cluster_file=planned.cluster_file,
                overlay=plan.overlay,
                kernels=options.kernels,
                trace=options.trace,
                threads=options.threads,
            )
        )
        runner = Runner(cluster, config, checkpoint, plan, options.progress, options.threads)
    except BaseException:
        stack.close()
        raise
    return OpenedModel(config, plan, cluster, runner, stack)
