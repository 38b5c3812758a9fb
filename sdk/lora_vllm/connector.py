"""vLLM's KV connector of a server that computes prompts for boards (docs/vllm_prefill.md).

vLLM loads it by `kv_connector_module_path` of `--kv-transfer-config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from lora_vllm.saving import Saving
from lora_vllm.tracking import Step, Tracking

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig


class LoraBoardsConnector(KVConnectorBase_V1):
    """Hands over K and V of prompts whose requests say `{"do_remote_decode": true}`, each layer
    while the next one computes. Fetches nothing."""

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        """ValueError: what of the configuration is not supported."""
        super().__init__(vllm_config, role, kv_cache_config)
        _check(vllm_config, kv_cache_config)
        socket = self._kv_transfer_config.get_from_extra_config("socket", None)
        room = self._kv_transfer_config.get_from_extra_config("room_mib", 1024)
        if not isinstance(socket, str) or not socket:
            raise ValueError(f"kv_connector_extra_config: socket is {socket!r}; expected a path")
        if type(room) is not int or room < 1:
            raise ValueError(f"kv_connector_extra_config: room_mib is {room!r}; expected MiB")
        worker = role == KVConnectorRole.WORKER
        self._tracking = None if worker else Tracking()
        self._saving = Saving(vllm_config, socket, room << 20) if worker else None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Layers are saved one by one."""
        return True

    # --- in the scheduler -----------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """Note a prompt that is to be handed over."""
        assert self._tracking is not None
        self._tracking.add(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Nothing is fetched."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing is fetched."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Step:
        """What the worker hands over of this step."""
        assert self._tracking is not None
        return self._tracking.step(scheduler_output)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        """Blocks are free at once: they have been copied. The answer names the prompt."""
        assert self._tracking is not None
        return False, self._tracking.finish(request)

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
