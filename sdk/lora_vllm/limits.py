"""vLLM's configuration on boards: limits that the boards set, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from lora_sdk.kv.pages import PAGE_POSITIONS, pages_for
from lora_vllm.prefill_source import PrefillSource
from lora_vllm.selection import options_for

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from lora_sdk.opening.options import EngineOptions
    from lora_sdk.plan.model_plan import Plan

logger = init_logger("vllm.lora_vllm")
WORKER = "lora_vllm.worker.LoraWorker"
CONNECTOR = "LoraBoardsConnector"


def refusals(config: VllmConfig) -> Iterator[str]:
    """What of the configuration boards do not do, each with what to do instead."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
                 "decode_context_parallel_size", "prefill_context_parallel_size"):  # fmt: skip
        size = getattr(parallel, name, 1)
        if size != 1:
            yield (
                f"{name} {size}: one vLLM worker runs all boards; name them with LORA_BOARDS, "
                "LORA_DEVICES or LORA_CLUSTER"
            )
    if model.runner_type != "generate":
        yield f"runner {model.runner_type!r}: boards generate; for embeddings use lora serve"
    if model.is_multimodal_model:
        yield f"{model.architecture}: a multimodal model; serve its text model's folder"
    if model.is_encoder_decoder:
        yield f"{model.architecture}: an encoder and decoder; boards run decoders"
    if model.enable_prompt_embeds:
        yield "enable_prompt_embeds: prompts are tokens"
    if model.enable_sleep_mode:
        yield "enable_sleep_mode: boards keep their weights"
    if model.revision not in (None, "main"):
        yield f"revision {model.revision!r:.40}: boards read 'main'; name its snapshot's folder"
    if model.hf_overrides:
        yield "hf_overrides: boards read the model's folder; change its config.json"
    if cache.user_specified_block_size and cache.block_size != PAGE_POSITIONS:
        yield f"block size {cache.block_size}: boards have pages of {PAGE_POSITIONS} positions"
    if cache.cache_dtype not in ("auto", "bfloat16", "float16"):
        yield (
            f"KV cache type {cache.cache_dtype!r}: boards have their own; set one by "
            '--additional-config \'{"kv": "int8-heads"}\''
        )
    if getattr(cache, "kv_offloading_size", None) is not None:
        yield "kv_offloading_size: blocks stay on boards; a prefix that left them is computed again"
    speculative = config.speculative_config
    if speculative is not None and speculative.method != "ngram":
        yield f"speculative method {speculative.method!r}: boards verify 'ngram'; see lora serve"
    transfer = config.kv_transfer_config
    if transfer is not None and transfer.kv_connector != CONNECTOR:
        yield f"KV connector {transfer.kv_connector!r}: boards take K and V by {CONNECTOR!r}"
    elif transfer is not None and transfer.kv_role != "kv_consumer":
        yield f"kv_role {transfer.kv_role!r}: boards are a 'kv_consumer'; see docs/vllm_prefill.md"
    if config.load_config.load_format not in ("auto", "safetensors", "hf"):
        yield f"load format {config.load_config.load_format!r}: boards load the model's folder"


def quantization_argument(config: VllmConfig) -> str | None:
    """The quantization that was asked for and that the model's folder does not have itself."""
    model = config.model_config
    stored = getattr(model.hf_config, "quantization_config", None)
    return model.quantization if model.quantization and stored is None else None


def apply_limits(config: VllmConfig) -> None:
    """Put the boards' limits into vLLM's configuration. ValueError: what is refused, or what the
    boards have no room for."""
    refused = list(refusals(config))
    quantization = quantization_argument(config)
    if quantization is not None:
        refused.append(
            f"quantization {quantization!r}: boards run what the model's folder holds; make one "
            "with lora quantize"
        )
    if refused:
        raise ValueError(f"boards do not support {'; nor '.join(refused)}")
    if config.kv_transfer_config is not None:
        prefill_source(config)  # what is wrong with it is said before boards are opened
        config.kv_transfer_config.kv_load_failure_policy = "recompute"
    plan = _plan(config)
    scheduler, cache = config.scheduler_config, config.cache_config
    config.parallel_config.worker_cls = WORKER
    config.parallel_config.distributed_executor_backend = "uni"
    scheduler.async_scheduling = False
    scheduler.enable_chunked_prefill = True
    scheduler.max_num_seqs = plan.max_sequences
    scheduler.max_num_batched_tokens = min(plan.row_limit, scheduler.max_num_batched_tokens)
    scheduler.max_num_scheduled_tokens = scheduler.max_num_batched_tokens
    config.model_config.max_model_len = plan.context
    cache.block_size = PAGE_POSITIONS
    room = blocks_of(plan)
    named = cache.num_gpu_blocks_override
    least = pages_for(plan.context) + 1
    if named is not None and named < least:
        raise ValueError(
            f"num_gpu_blocks_override {named}; expected at least {least}, for one sequence of "
            f"{plan.context} positions and block 0; name more, or a smaller max_model_len"
        )
    cache.num_gpu_blocks_override = min(room, named or room)
    logger.info(
        "boards: %d rows a step, %d sequences, %d positions each, %d KV blocks of %d",
        scheduler.max_num_batched_tokens, plan.max_sequences, plan.context,
        cache.num_gpu_blocks_override, PAGE_POSITIONS,
    )  # fmt: skip


def prefill_source(config: VllmConfig) -> PrefillSource | None:
    """Where K and V of prompts come from; None where boards compute all. RequestError."""
    transfer = config.kv_transfer_config
    return None if transfer is None else PrefillSource.of(transfer.kv_connector_extra_config)


def blocks_of(plan: Plan) -> int:
    """vLLM's blocks: one for each page of sequences, and block 0, which vLLM never writes."""
    return plan.page_count - pages_for(plan.overlay.max_scratch) + 1


def board_options(config: VllmConfig) -> EngineOptions:
    """Options of lora_sdk for what vLLM was told. Errors of lora_sdk pass through."""
    extra: Any = config.additional_config
    lora = config.lora_config
    adapters = {} if lora is None else {
        "max_adapters": lora.max_loras, "max_adapter_rank": lora.max_lora_rank,
    }  # fmt: skip
    return options_for(
        config.model_config.model,
        extra if isinstance(extra, dict) else {},
        context=config.model_config.max_model_len,
        max_sequences=config.scheduler_config.max_num_seqs,
        **adapters,
    )


def _plan(config: VllmConfig) -> Plan:
    """The model's placement with as many sequences and positions as vLLM wants, where boards have
    them. A length that the user named is not cut."""
    from dataclasses import replace

    from lora_host.errors import PlacementError
    from lora_sdk.opening.opening import plan_model

    scheduler, model = config.scheduler_config, config.model_config
    options = board_options(config)
    widest = plan_model(replace(options, context=None, max_sequences=None)).plan
    context = min(model.max_model_len, widest.context_limit)
    named = model.original_max_model_len
    if named not in (None, -1) and named > context:
        raise PlacementError(
            f"max_model_len {named}; the boards have room for {widest.context_limit} positions"
        )
    sequences = min(scheduler.max_num_seqs, widest.overlay.max_sequences)
    return plan_model(replace(options, context=context, max_sequences=sequences)).plan
