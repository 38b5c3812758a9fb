"""From options to a model on boards. All checks that need no board come before boards open."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import ModelError, RequestError
from lora_host.naming import counted
from lora_sdk.opening.options import EngineOptions

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_host.cluster_file import ClusterFile
    from lora_sdk.model.checkpoint import Checkpoint
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.step.runner import Runner


@dataclass(frozen=True)
class PlannedModel:
    """A model's placement, and the cluster file's boards for it (None: emulated boards)."""

    config: ModelConfig
    plan: Plan
    cluster_file: ClusterFile | None


@dataclass
class OpenedModel:
    """A placed model. Closing `stack` releases the boards and files. `reopen` replaces plan,
    cluster and runner, so others read them here."""

    config: ModelConfig
    plan: Plan
    cluster: Cluster
    runner: Runner
    checkpoint: Checkpoint
    stack: ExitStack

    def reopen(self, options: EngineOptions, file: ClusterFile, plan: Plan) -> None:
        """Place the model on the boards of `file`, in place of all that are open. Errors of every
        layer pass through; the old boards are closed then."""
        self.cluster.close()
        self.cluster = _open_cluster(options, plan, file)
        self.plan = plan
        self.runner = _place(self.cluster, self.config, self.checkpoint, plan, options)


def connected(path: Path, boards: int) -> ClusterFile:
    """`boards` boards of the cluster file that form a ring or path. RequestError if the file has
    fewer boards, LinkError if no path has that many."""
    from lora_host.cluster_file import load_cluster
    from lora_sdk.plan.topology import route

    file = load_cluster(path)
    if boards > len(file.boards):
        raise RequestError(
            f"{path}: {counted(len(file.boards), 'board')} found, {boards} requested"
        )
    return file.only(route(file.cables, boards).order)


def plan_model(options: EngineOptions, config: ModelConfig | None = None) -> PlannedModel:
    """The model's placement, or that of `config` instead. Reads only the model's configuration.
    Errors of every layer pass through."""
    from lora_host.cluster_file import ring
    from lora_host.overlay import load_overlay
    from lora_host.selection import check_kinds
    from lora_sdk.model.config import load_config
    from lora_sdk.model.rope import at_context
    from lora_sdk.model.spec import with_kv_cache
    from lora_sdk.plan.overlay_choice import choose_overlay, held_by
    from lora_sdk.plan.placement import make_plan
    from lora_sdk.plan.topology import route

    boards = options.board_count
    config = with_kv_cache(config or load_config(options.folder), options.kv_kind)
    config = at_context(config, options.context)
    config = options.held(config)
    overlay = load_overlay(options.overlay or choose_overlay(config, options.board_kind))
    config = held_by(config, overlay)
    file = connected(Path(options.cluster_file), boards) if options.cluster_file else None
    check_kinds(file.boards if file is not None else (), overlay)
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
        stages=options.stages,
        final_states=options.embeddings,
    )
    return PlannedModel(config, plan, file)


def open_model(options: EngineOptions) -> OpenedModel:
    """Plan, open the boards, place the weights. Errors of every layer pass through."""
    from lora_sdk.model.attention_scales import UncalibratedError
    from lora_sdk.model.checkpoint import Checkpoint

    planned = plan_model(options)
    config, plan = planned.config, planned.plan
    try:
        checkpoint = Checkpoint.open(options.folder, config)
    except UncalibratedError as error:
        if options.kv_kind is None:
            raise
        raise ModelError(str(error), usage=True) from None  # the caller's choice, not the file's
    cluster = _open_cluster(options, plan, planned.cluster_file)
    try:
        runner = _place(cluster, config, checkpoint, plan, options)
    except BaseException:
        cluster.close()
        raise
    opened = OpenedModel(config, plan, cluster, runner, checkpoint, ExitStack())
    opened.stack.callback(lambda: opened.cluster.close())
    return opened


def replan(
    opened: OpenedModel, file: ClusterFile, boards: int, stages: int
) -> tuple[list[int], Plan]:
    """`boards` of the file's boards, ascending, and the model's placement on them in `stages`
    stages, with the same context and sequences. LinkError if no path has that many, PlacementError
    if it does not fit."""
    from lora_sdk.plan.placement import make_plan
    from lora_sdk.plan.topology import route

    old = opened.plan
    chosen = sorted(route(file.cables, boards).order)
    plan = make_plan(
        opened.config,
        old.overlay,
        old.overlay.board,
        boards,
        context=old.context,
        sequences=old.max_sequences,
        route=route(file.only(chosen).cables, boards),
        hidden_taps=old.hidden_taps,
        adapters=old.adapters,
        stages=stages,
        final_states=old.final_states,
    )
    return chosen, plan


def _open_cluster(options: EngineOptions, plan: Plan, file: ClusterFile | None) -> Cluster:
    from lora_host.cluster import Cluster

    return Cluster.open(
        boards=plan.size,
        devices=() if file is not None else options.devices,
        cluster_file=file,
        overlay=plan.overlay,
        kernels=options.kernels,
        trace=options.trace,
        threads=options.threads,
    )


def _place(
    cluster: Cluster,
    config: ModelConfig,
    checkpoint: Checkpoint,
    plan: Plan,
    options: EngineOptions,
) -> Runner:
    from lora_sdk.step.runner import Runner

    return Runner(cluster, config, checkpoint, plan, options.progress, options.threads)
