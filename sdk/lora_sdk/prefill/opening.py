"""From the option `prefill` to a worker."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.core.options import EngineOptions
from lora_sdk.core.worker_name import parse_worker
from lora_sdk.prefill.boards import BoardsComputer, worker_options
from lora_sdk.prefill.worker import Worker

if TYPE_CHECKING:
    from lora_sdk.core.opening import OpenedModel
    from lora_sdk.core.worker_name import WorkerName
    from lora_sdk.prefill.exact.computer import ExactComputer
    from lora_sdk.prefill.torch_computer import TorchComputer


def check_worker(options: EngineOptions) -> None:
    """RequestError, before boards are opened, if the worker's libraries are not installed, or an
    exact one's device or the model is none that it computes."""
    if options.prefill is None:
        return
    name = parse_worker(options.prefill, options.prefill_is_fast)
    if name.device is None:
        return
    fast = options.prefill_is_fast
    needed = ("torch", "transformers") if fast else ("torch",)
    for library in needed:
        if find_spec(library) is None:
            raise RequestError(
                f"{'fast prefill' if fast else f'prefill {name.text!r}'} needs "
                f"{' and '.join(needed)}, {library} is not installed; install the extra: "
                "pip install 'lora-fpga[prefill]'"
            )
    if not options.prefill_is_fast:
        _check_exact(options, name)


def _check_exact(options: EngineOptions, name: WorkerName) -> None:
    from lora_sdk.model.config import load_config
    from lora_sdk.prefill.exact.opening import open_kernels
    from lora_sdk.prefill.exact.operations import check_model

    check_model(load_config(options.folder))
    open_kernels(name)


def open_worker(options: EngineOptions, opened: OpenedModel) -> Worker | None:
    """The worker that an engine's options name, None for none. `opened`: the engine's model. Errors
    of every layer pass through."""
    if options.prefill is None:
        return None
    name = parse_worker(options.prefill, options.prefill_is_fast)
    if options.prefill_is_fast:
        return Worker(f"{name.text} (fast)", _torch_computer(options, opened, name.text))
    if name.device is not None:
        return Worker(name.text, _exact_computer(opened, name))
    return Worker(name.text, BoardsComputer(worker_options(options, name)))


def _exact_computer(opened: OpenedModel, name: WorkerName) -> ExactComputer:
    from lora_sdk.prefill.exact.computer import ExactComputer
    from lora_sdk.prefill.exact.opening import open_kernels

    context, (device, kernels) = opened.plan.context, open_kernels(name)
    return ExactComputer(opened.config, opened.checkpoint, context, device, kernels)


def _torch_computer(options: EngineOptions, opened: OpenedModel, device: str) -> TorchComputer:
    from lora_sdk.prefill.torch_computer import TorchComputer
    from lora_sdk.prefill.torch_model import load_torch

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
