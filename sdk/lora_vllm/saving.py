"""The worker's side of LoraBoardsConnector: blocks of vLLM's cache, copied layer by layer."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.models.utils import extract_layer_index

from lora_sdk.prefill.shared_kv import Opening
from lora_vllm.block_layout import BlockLayout
from lora_vllm.hand_out import HandOut

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from lora_vllm.tracking import Slice, Step

_log = logging.getLogger("vllm.lora_vllm")


class Saving:
    """Copies in a thread of its own, while the model's next layer computes."""

    def __init__(self, config: VllmConfig, socket: str, room: int) -> None:
        """OSError: the socket cannot be made."""
        self._config = config
        self._layers = config.model_config.get_num_layers(config.parallel_config)
        self._out = HandOut(socket, room)
        self._layout: BlockLayout | None = None
        self._work: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="lora-saving", daemon=True)
        self._thread.start()

    def begin(self, step: Step) -> None:
        """A step's news, before its rows."""
        for name in step.announced:
            self._out.announce(name)
        for name in step.dropped:
            self._out.drop(name, "vLLM has not computed it to its end")

    def save(self, layer_name: str, cache: torch.Tensor, step: Step) -> None:
        """Take the step's positions out of a layer's blocks, without waiting."""
        if not step.slices:
            return
        if self._layout is None:
            attention = self._config.compilation_config.static_forward_context[layer_name]
            self._layout = BlockLayout(attention, cache)
        ready = None
        if cache.is_cuda:
            ready = torch.cuda.current_stream().record_event()
        self._work.put((extract_layer_index(layer_name), cache, step.slices, ready))

    def wait(self) -> None:
        """Until all has been taken."""
        self._work.join()

    def close(self) -> None:
        """End the thread, drop all prompts."""
        self._work.put(None)
        self._thread.join()
        self._out.close()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            layer, cache, slices, ready = work
            if ready is not None:
                ready.synchronize()
            for one in slices:
                try:
                    if self._out.wants(one.name):
                        self._copy(layer, cache, one)
                except Exception as error:  # vLLM's own work goes on
                    _log.warning("K and V of %s: %s; they are not handed over", one.name, error)
                    self._out.drop(one.name, f"cannot be copied: {error}")
            self._work.task_done()
        self._work.task_done()

    def _copy(self, layer: int, cache: torch.Tensor, one: Slice) -> None:
        layout = self._layout
        assert layout is not None
        kind = torch.float16 if cache.dtype == torch.float16 else torch.float32
        if not one.start and not layer:
            self._out.begin(one.name, Opening(
                self._layers, layout.heads, layout.head_dim, one.total,
                str(kind).removeprefix("torch."), one.digest,
            ))  # fmt: skip
        first = one.start // layout.positions
        blocks = torch.tensor(
            self._blocks(one, cache)[first : -(-one.stop // layout.positions)], device=cache.device
        )
        kv = layout.take(cache, blocks)
        skipped = first * layout.positions
        kv = kv[:, one.start - skipped : one.stop - skipped].to("cpu", kind)
        self._out.put(one.name, layer, one.start, kv.numpy())

    def _blocks(self, one: Slice, cache: torch.Tensor) -> list[int]:
        """The blocks of the cache, of which several may be one of the scheduler's."""
        parts = self._config.cache_config.block_size // cache.shape[2]
        return [block * parts + part for block in one.blocks for part in range(parts)]
