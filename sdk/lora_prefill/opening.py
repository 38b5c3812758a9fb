"""What an engine asks for by name, to open a worker that computes in torch
(lora_sdk.prefill.opening)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_host.naming import install
from lora_sdk.model.config import load_config

if TYPE_CHECKING:
    from lora_prefill.exact.computer import ExactComputer
    from lora_prefill.torch_computer import TorchComputer
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.opening.options import EngineOptions
    from lora_sdk.opening.worker_name import WorkerName


def check_worker(options: EngineOptions, name: WorkerName) -> None:
    """RequestError, before boards are opened, if torch is not installed, or an exact worker's
    device or the model is none that it computes."""
    fast = options.prefill_is_fast
    needed = ("torch", "transformers") if fast else ("torch",)
    for library in needed:
        if find_spec(library) is None:
            raise RequestError(
                f"{'fast prefill' if fast else f'prefill {name.text!r}'} needs "
                f"{' and '.join(needed)}, {library} is not installed; {install('prefill')}"
            )
    if not fast:
        from lora_prefill.exact.opening import open_kernels
        from lora_prefill.exact.operations import check_model

        check_model(load_config(options.folder))
        open_kernels(name)


def open_exact(opened: OpenedModel, name: WorkerName) -> ExactComputer:
    """A computer of the boards' own bytes. `opened`: the engine's model."""
    from lora_prefill.exact.computer import ExactComputer
    from lora_prefill.exact.opening import open_kernels

    context, (device, kernels) = opened.plan.context, open_kernels(name)
    return ExactComputer(opened.config, opened.checkpoint, context, device, kernels)


def open_fast(options: EngineOptions, opened: OpenedModel, device: str) -> TorchComputer:
    """A computer in transformers' own arithmetic. RequestError: the model is no folder, or its
    rotary positions depend on the prompt's length."""
    from lora_prefill.torch_computer import TorchComputer
    from lora_prefill.torch_model import load_torch

    other = None if options.prefill_model is None else Path(options.prefill_model)
    if other is None and not options.folder.is_dir():
        raise RequestError(
            f"{options.folder} is no folder, which fast prefill needs; name one of the same model "
            "as the prefill model"
        )
    rope = opened.config.rope
    if rope is not None and rope.context:
        raise RequestError(
            "fast prefill does not take longrope or dynamic rotary positions: transformers' "
            "depend on the prompt's length, the boards' on the context"
        )
    model = load_torch(options.folder, other, device)
    scales = opened.runner.attention_scales
    return TorchComputer(model, opened.config, scales, opened.plan.context)
