"""From the option `prefill` to a worker."""

from __future__ import annotations

from lora_sdk.core.options import EngineOptions
from lora_sdk.core.worker_name import parse_worker
from lora_sdk.prefill.boards import BoardsComputer, worker_options
from lora_sdk.prefill.worker import Worker


def open_worker(options: EngineOptions) -> Worker | None:
    """The worker that an engine's options name, None for none. Errors of every layer pass
    through."""
    if options.prefill is None:
        return None
    name = parse_worker(options.prefill)
    return Worker(name.text, BoardsComputer(worker_options(options, name)))
