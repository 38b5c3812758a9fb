"""From the option `prefill` to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from lora_host.errors import RequestError
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.worker_name import parse_worker
from lora_sdk.optional import required_module
from lora_sdk.prefill.boards import BoardsComputer, worker_options
from lora_sdk.prefill.receiving import ReceivingComputer
from lora_sdk.prefill.worker import Worker

if TYPE_CHECKING:
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.opening.worker_name import WorkerName
    from lora_sdk.prefill.job import Computer


class TorchWorkers(Protocol):
    """Names of lora_prefill.opening."""

    def check_worker(self, options: EngineOptions, name: WorkerName) -> None:
        """RequestError, before boards are opened, if it cannot be opened."""

    def open_exact(self, opened: OpenedModel, name: WorkerName) -> Computer:
        """A computer of the boards' own bytes."""

    def open_fast(self, options: EngineOptions, opened: OpenedModel, device: str) -> Computer:
        """A computer in transformers' own arithmetic."""


def check_worker(options: EngineOptions) -> None:
    """RequestError, before boards are opened, if the worker's libraries are not installed, or an
    exact one's device or the model is none that it computes."""
    if options.prefill is None:
        return
    name = parse_worker(options.prefill, options.prefill_is_fast)
    if name.device is not None:
        _torch_workers(name).check_worker(options, name)


def open_worker(options: EngineOptions, opened: OpenedModel) -> Worker | None:
    """The worker that an engine's options name, None for none. `opened`: the engine's model. Errors
    of every layer pass through."""
    if options.prefill is None:
        return None
    name = parse_worker(options.prefill, options.prefill_is_fast)
    if opened.config.recurrent is not None and (options.prefill_is_fast or name.device is not None):
        raise RequestError(
            f"prefill {name.text!r}: does not compute the state of layers without attention, as"
            f" {opened.config.architecture} has; use prefill 'boards:N', or none"
        )
    if opened.config.latent is not None and options.prefill_is_fast:
        raise RequestError(
            f"prefill {name.text!r}: keeps latents, where boards keep K and V of each head of"
            f" {opened.config.architecture}; use prefill 'boards:N', or none"
        )
    if name.socket is not None:
        scales, context = opened.runner.attention_scales, opened.plan.context
        receiving = ReceivingComputer(name.socket, opened.config, scales, context)
        return Worker(f"{name.text} (fast)", receiving)
    if options.prefill_is_fast:
        computer = _torch_workers(name).open_fast(options, opened, name.text)
        return Worker(f"{name.text} (fast)", computer)
    if name.device is not None:
        return Worker(name.text, _torch_workers(name).open_exact(opened, name))
    return Worker(name.text, BoardsComputer(worker_options(options, name)))


def _torch_workers(name: WorkerName) -> TorchWorkers:
    module = required_module("lora_prefill.opening", f"prefill {name.text!r}")
    return cast(TorchWorkers, module)
