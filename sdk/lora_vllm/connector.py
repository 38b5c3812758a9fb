"""vLLM's KV connector between a server that computes prompts and boards (docs/vllm_prefill.md).

vLLM loads it by `kv_connector_module_path` of `--kv-transfer-config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from lora_vllm.asking import Asking
from lora_vllm.platform import LoraPlatform
from lora_vllm.prefill_metrics import PrefillMetrics, PrefillStats
from lora_vllm.prefill_source import PrefillSource
from lora_vllm.saving import Saving
from lora_vllm.tracking import Step, Tracking

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput


class LoraBoardsConnector(KVConnectorBase_V1):
    """A stock server hands over K and V of prompts whose requests say `{"do_remote_decode": true}`,
    each layer while the next one computes. On boards those of `{"do_remote_prefill": true}` are
    taken, beside the steps of others."""

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        """ValueError: what of the configuration is not supported."""
        super().__init__(vllm_config, role, kv_cache_config)
        self._scheduler: Tracking | Asking | None = None
        self._saving: Saving | None = None
        if _on_boards():  # whose worker loads by itself
            self._scheduler = Asking(PrefillSource.of(self._extra()))
            return
        _check(vllm_config, kv_cache_config)
        socket, room = self._extra().get("socket"), self._extra().get("room_mib", 1024)
        if not isinstance(socket, str) or not socket:
            raise ValueError(f"kv_connector_extra_config: socket is {socket!r}; expected a path")
        if type(room) is not int or room < 1:
            raise ValueError(f"kv_connector_extra_config: room_mib is {room!r}; expected MiB")
        if role == KVConnectorRole.WORKER:
            self._saving = Saving(vllm_config, socket, room << 20)
        else:
            self._scheduler = Tracking()

    def _extra(self) -> dict[str, Any]:
        return dict(self._kv_transfer_config.kv_connector_extra_config)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Layers are saved one by one."""
        return True

    # --- in the scheduler -----------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """Note a prompt that is to be handed over."""
        self._side.add(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """On boards what a worker computes; a server on its own fetches nothing."""
        return self._side.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Blocks for what was matched."""
        self._side.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """What the worker does for this step."""
        return self._side.step(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """What has come."""
        self._side.note(connector_output)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        """Blocks are free at once: they have been copied, or filled. The answer names the prompt,
        or says how it was computed."""
        return False, self._side.finish(request)

    @property
    def _side(self) -> Tracking | Asking:
        assert self._scheduler is not None
        return self._scheduler

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> PrefillStats:
        """Counts as they came from the worker."""
        return PrefillStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> PrefillMetrics | None:
        """Metrics of prompts that were computed for boards."""
        if not _on_boards():
            return None
        return PrefillMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # --- in the worker --------------------------------------------------------------------------

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """The step's news, before its rows. vLLM may call `start_load_kv` after them."""
        super().bind_connector_metadata(connector_metadata)
        assert self._saving is not None
        self._saving.begin(self._step())

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing is fetched."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is fetched."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Copy a layer's blocks while the next layer computes."""
        assert self._saving is not None
        self._saving.save(layer_name, kv_layer, self._step())

    def wait_for_save(self) -> None:
        """Until the blocks have been copied."""
        assert self._saving is not None
        self._saving.wait()

    def shutdown(self) -> None:
        """Close the socket."""
        if self._saving is not None:
            self._saving.close()

    def _step(self) -> Step:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        return step


def _on_boards() -> bool:
    """Whether vLLM runs on the plug-in's platform."""
    from vllm.platforms import current_platform

    return isinstance(current_platform, LoraPlatform)


def _check(config: VllmConfig, cache: KVCacheConfig) -> None:
    parallel, transfer = config.parallel_config, config.kv_transfer_config
    role = None if transfer is None else transfer.kv_role
    if role != "kv_producer":
        raise ValueError(f"kv_role is {role!r}; expected 'kv_producer': boards take K and V")
    if parallel.world_size != 1 or parallel.data_parallel_size != 1:
        raise ValueError(
            f"{parallel.world_size} workers of vLLM and {parallel.data_parallel_size} engines; "
            "LoraBoardsConnector supports one of each"
        )
    groups = len(cache.kv_cache_groups)
    if groups != 1:
        raise ValueError(f"the model has {groups} kinds of K and V; expected full attention alone")
