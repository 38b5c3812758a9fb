"""`lora serve`: an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lora_host.errors import RequestError
from lora_host.naming import install
from lora_sdk.cli.adapters import NamedAdapter, adapter_flags, load_adapters, take_adapters
from lora_sdk.cli.flags import RUN_FLAGS, flags
from lora_sdk.cli.folding import show
from lora_sdk.cli.ray_flags import ray_cluster, ray_flags, take_ray
from lora_sdk.cli.run_command import GROUPS as GROUPS_OF_RUN
from lora_sdk.cli.serve_aliases import NAMES, alias_flags, take_aliases
from lora_sdk.cli.serve_command import ServeCommand, read_config
from lora_sdk.cli.speculation import speculation_flags, take_speculation
from lora_sdk.opening.options import EngineOptions
from lora_sdk.plan.adapters import DEFAULT_RANK
from lora_sdk.serve.settings import Settings, check_exposure, check_key, digest, read_keys

if TYPE_CHECKING:
    from lora_sdk.cli.adapters import TakesAdapters
    from lora_sdk.opening.options import Progress
    from lora_sdk.serve.backend import Backend
    from lora_sdk.spec.resolve import ResolvedSpeculation

SETTINGS = (
    *("names", "host", "port", "uds", "max_queue", "max_prompts", "max_body", "adapter_root"),
    *("body_timeout", "request_timeout", "drain_timeout", "otlp_traces_endpoint"),
    *("chat_template", "reasoning_parser", "tool_call_parser", "docs", "strict", "log_level"),
    *("pooling", "root_path", "allowed_origins", "ssl_certfile", "ssl_keyfile"),
)
RANK = {
    "flags": ("--max-adapter-rank",),
    "default": None,
    "type": "int | None",
    "help": "max rank of the adapters that clients load",
    "unset": str(DEFAULT_RANK),
}
EMBEDDINGS = {"flags": ("--embeddings",), "help": "answer /v1/embeddings, too"}
SLOTS = 4  # for adapters that clients load, where the number is not given
GROUPS = {
    "Used most": (
        *("model", "boards", "host", "port", "names", "api_key_file", "context", "max_sequences"),
        *("adapters", "ssl_certfile"),
    ),
    "Model": (
        *("kv", "prefix_cache", "kv_offload", "kv_offload_dir", "prefill", "prefill_mode"),
        *("prefill_model", "gguf_weights", "chat_template", "reasoning_parser"),
        *("tool_call_parser", "embeddings", "pooling"),
    ),
    "Boards": GROUPS_OF_RUN["Boards"],
    "Requests": (
        *("max_queue", "max_prompts", "max_body", "body_timeout", "request_timeout"),
        *("drain_timeout", "strict"),
    ),
    "Network and keys": (
        *("uds", "root_path", "allowed_origins", "ssl_keyfile", "api_keys", "insecure", "docs"),
    ),
    "Adapters": ("max_adapters", "adapter_mode", "adapter_root", "max_adapter_rank"),
    "Speculation": GROUPS_OF_RUN["Speculation"],
    "Reliability": GROUPS_OF_RUN["Reliability"],
    "Several computers": (
        *("ray", "replicas", "board", "daemons", "ray_address", "ray_token_file"),
    ),
    "As vLLM has them": ("tensor_parallel", "pipeline_parallel", "dtype", "enable_lora"),
    "Settings and log": ("config", "log_level", "otlp_traces_endpoint", "help"),
}
"""Of the help."""
EPILOG = """\b
Examples:
  lora serve --boards 4
  lora serve ~/models/llama --adapter docs=~/adapters/docs --port 8001
  lora serve --adapter-root ~/adapters --max-adapters 8
  lora serve --host 0.0.0.0 --api-key-file /etc/lora/keys
  lora serve --ray --replicas 2 --boards 4
  lora serve ~/models/llama --max-model-len 2048 -tp 4
  lora serve --config serve.yaml

\b
Options also come from variables (LORA_PORT is --port), then from --config.

\b
Ctrl-C and SIGTERM take no further request, finish those that run and give the
boards back; a second one cancels them. Exit code: 0 drained, 1 failed, 2
refused."""


@click.command("serve", cls=ServeCommand, groups=GROUPS, epilog=EPILOG)
@alias_flags
@flags(EngineOptions, *RUN_FLAGS, "embeddings", embeddings=EMBEDDINGS, **NAMES)
@adapter_flags
@flags(EngineOptions, "max_adapter_rank", max_adapter_rank=RANK)
@speculation_flags
@flags(Settings, *SETTINGS)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help="accepted API key, which other users of this computer can see; may be repeated",
)
@click.option("--api-key-file", metavar="FILE", help="accepted API keys, one a line")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="YAML file of options by their names, for those that are not given",
)
@click.option("--insecure", is_flag=True, help="serve other machines without a key")
@ray_flags
def serve(
    api_keys: Sequence[str], api_key_file: str | None, insecure: bool, **options: Any
) -> None:
    """Serve a model through OpenAI's HTTP protocol."""
    take_aliases(options)
    engine_arguments = {key: options.pop(key) for key in (*RUN_FLAGS, "embeddings")}
    adapters, more = _take_adapters(options)
    engine_arguments.update(more)
    choice = take_ray(options)
    if choice.wanted and engine_arguments.pop("embeddings"):
        raise RequestError("--embeddings is for one engine; leave out --ray")
    drafts = take_speculation(options, engine_arguments)
    keys = tuple(digest(check_key(key, "--api-key")) for key in api_keys)
    if api_key_file is not None:
        keys += read_keys(Path(api_key_file))
    if options["uds"] is None:
        check_exposure(options["host"], keys, insecure)
    if not options["names"]:
        options["names"] = (EngineOptions(**engine_arguments).folder.resolve().name,)
    settings = Settings(keys=keys, **options)
    try:
        from lora_sdk.serve.server import run_server
    except ImportError as error:
        raise RequestError(
            f"lora serve needs the package {error.name}; {install('serve')}"
        ) from None

    if choice.wanted:
        with ray_cluster(choice, engine_arguments, "lora serve --ray") as open_replicas:
            load = partial(_load, adapters)
            run_server(settings, lambda told: open_replicas.backend(drafts.options, told, load))
        return
    run_server(settings, partial(_open_engine, engine_arguments, drafts, adapters))


def _open_engine(
    arguments: Mapping[str, Any],
    drafts: ResolvedSpeculation,
    adapters: Sequence[NamedAdapter],
    progress: Progress,
) -> Backend:
    """One engine in this process."""
    from lora_sdk.engine.engine import Engine
    from lora_sdk.serve.backend import EngineBackend

    engine = Engine(progress=progress, speculation=drafts.options, **arguments)
    try:
        _load(adapters, engine)
    except BaseException:
        engine.close()
        raise
    return EngineBackend(engine)


def _load(adapters: Sequence[NamedAdapter], engine: TakesAdapters) -> None:
    for note in load_adapters(engine, adapters):
        show(note, err=True)


def _take_adapters(options: dict[str, Any]) -> tuple[list[NamedAdapter], dict[str, Any]]:
    """Take the options of adapters out: those that are named, and the Engine's arguments, with room
    for those that clients load."""
    rank = options.pop("max_adapter_rank")
    if options["adapter_root"] is None:
        if rank is not None:
            raise RequestError("--max-adapter-rank is for --adapter-root; name a folder")
        return take_adapters(options)
    slots, mode = options["max_adapters"], options["adapter_mode"]
    options["max_adapters"] = None
    found, more = take_adapters(options)
    return found, {
        "max_adapters": max(SLOTS, len(found)) if slots is None else slots,
        "max_adapter_rank": max(rank or DEFAULT_RANK, more.get("max_adapter_rank", 1)),
        "adapter_mode": mode,
    }
