"""The worker: vLLM's calls, to boards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from lora_host.errors import LoraError
from lora_host.naming import counted
from lora_vllm.boards import Boards
from lora_vllm.limits import blocks_of, board_options, prefill_source
from lora_vllm.loading import Loading
from lora_vllm.runner import Runner

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput


LAYER = "boards"  # vLLM's one layer of K and V: boards hold those of the model in the same pages


def _end_with_parent() -> None:
    """Where a server is killed, its engine's process ends as by SIGTERM, and holds no boards. An
    engine in the caller's own process has nothing to watch."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lora-parent", daemon=True).start()


class LoraWorker(WorkerBase):
    """Opens the boards, runs vLLM's steps on them."""

    def init_device(self) -> None:
        """Nothing: boards are opened with the model."""
        self.device = torch.device("cpu")
        _end_with_parent()

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Open the boards and place the model. Errors of every layer pass through."""
        if load_dummy_weights:
            raise ValueError("dummy weights: boards load the model's folder")
        options = board_options(self.vllm_config)
        lora = self.vllm_config.lora_config
        self._boards = Boards(options, 0 if lora is None else lora.max_cpu_loras or lora.max_loras)
        self._check_vocabulary()
        self._loading = None
        source = prefill_source(self.vllm_config)
        if source is not None:
            self._loading = Loading(source, options, self._boards)
        self._runner = Runner(self.vllm_config, self._boards, self._loading)

    def _check_vocabulary(self) -> None:
        ours, theirs = self._boards.opened.config.vocabulary, self.vocab_size
        if ours != theirs:
            raise ValueError(f"vLLM reads a vocabulary of {theirs}, boards one of {ours}")

    def get_model(self) -> torch.nn.Module:
        """NotImplementedError: no module of torch holds the model. What asks for it is
        `LLM.apply_model` alone."""
        raise NotImplementedError("boards hold the model; there is no torch module of it")

    def get_model_inspection(self) -> str:
        """What `print(LLM(...))` shows."""
        plan = self._boards.opened.plan
        return f"{self.model_config.model} on {counted(plan.size, 'board')}, {plan.overlay.name}"

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What requests may ask."""
        return ("generate",)

    # --- pages ----------------------------------------------------------------------------------

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        """One layer stands for all: vLLM's blocks are the boards' pages."""
        head = self._boards.opened.config.head_dim
        return {
            LAYER: FullAttentionSpec(
                block_size=self.cache_config.block_size,
                num_kv_heads=1,
                head_size=head,
                dtype=torch.float16,
            )
        }

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """A name that vLLM wants; boards have their own layout."""
        return ["LBHNC"]

    def determine_available_memory(self) -> int:
        """Bytes of vLLM's one layer in as many pages as boards have."""
        (spec,) = self.get_kv_cache_spec().values()
        return int(spec.page_size_bytes * (blocks_of(self._boards.opened.plan) + 1))

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Boards have their pages. ValueError if vLLM counts more."""
        room = blocks_of(self._boards.opened.plan)
        if kv_cache_config.num_blocks > room:
            raise ValueError(f"{kv_cache_config.num_blocks} KV blocks; boards have {room}")

    def get_kv_connector_handshake_metadata(self) -> None:
        """Nothing: the worker that computes prompts is asked for each of them."""

    def update_max_model_len(self, max_model_len: int) -> None:
        """vLLM has cut the length to what its blocks hold."""
        self.model_config.max_model_len = max_model_len

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Command lists were registered with the model."""
        return CompilationTimes(0.0, 0.0)

    # --- steps ----------------------------------------------------------------------------------

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run a step. RuntimeError: a board has failed, in our words."""
        try:
            return self._runner.execute(scheduler_output)
        except LoraError as error:
            raise RuntimeError(f"boards: {error}") from error

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        """The tokens of that step."""
        return self._runner.sample(grammar_output)

    def execute_dummy_batch(self) -> None:
        """Nothing: no other worker waits."""

    def synchronize_device(self) -> None:
        """Nothing runs between calls."""

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """Drafts for the next step, which verifies them."""
        return self._runner.take_drafts()

    def reset_encoder_cache(self) -> None:
        """There is none."""

    # --- adapters -------------------------------------------------------------------------------

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Load an adapter's folder. ValueError: what of it boards do not support;
        LoRAAdapterNotFoundError: no such folder."""
        try:
            self._boards.vllm_adapters.name_of(lora_request)
        except LoraError as error:
            raise ValueError(f"adapter {lora_request.lora_name!r}: {error}") from error
        return True

    def remove_lora(self, lora_id: int) -> bool:
        """Forget an adapter. ValueError while requests use it."""
        try:
            self._boards.vllm_adapters.remove(lora_id)
        except LoraError as error:
            raise ValueError(str(error)) from error
        return True

    def pin_lora(self, lora_id: int) -> bool:
        """Keep an adapter until it is removed. False: it is not loaded."""
        return self._boards.vllm_adapters.pin(lora_id)

    def list_loras(self) -> set[int]:
        """Those that are loaded."""
        return self._boards.vllm_adapters.numbers()

    # --- state ----------------------------------------------------------------------------------

    def board_statistics(self) -> dict[str, int]:
        """Counts, by `collective_rpc("board_statistics")`: requests, sequences open, steps, rows,
        positions that sequences found in their pages, recoveries."""
        boards = self._boards
        return {
            "requests": len(self._runner.requests.known),
            "sequences": boards.cache.max_sequences - boards.cache.free_sequences,
            "steps": boards.stepper.steps,
            "rows": boards.stepper.rows,
            "found_positions": boards.cache.found,
            "recoveries": boards.recovery.count,
        }

    def shutdown(self) -> None:
        """Give the boards back."""
        loading = getattr(self, "_loading", None)
        if loading is not None:
            loading.close()
        boards = getattr(self, "_boards", None)
        if boards is not None:
            boards.close()
        if not torch.accelerator.is_available():  # vLLM empties its caches, also where none is
            torch.accelerator.empty_cache = lambda: None
            torch.accelerator.empty_host_cache = lambda: None
