"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lora_sdk.model.kv_formats import KV_KINDS

Function = TypeVar("Function", bound=Callable[..., Any])

ENGINE_OPTIONS = (
    *("model", "boards", "devices", "cluster_file"),
    *("overlay", "kernels", "threads", "context", "kv"),
)
"""Names of the arguments that `engine_options` gives, as Engine takes them."""


def engine_options(function: Function) -> Function:
    """Options that say which model runs on which boards: the arguments of Engine."""
    for option in reversed(
        [
            click.option("-m", "--model", metavar="DIR", help="Hugging Face model folder [demo]"),
            click.option("--boards", type=int, metavar="N", help="1, 2, 4 or 8 boards [1]"),
            click.option("--device", "devices", multiple=True, metavar="URI",
                         help="board to use, as emu:u280; once a board"),
            click.option("--cluster", "cluster_file", metavar="FILE",
                         help="cluster file: boards and cabling"),
            click.option("--overlay", metavar="NAME",
                         help="overlay name or folder [one that takes the model]"),
            click.option("--kernels", type=click.Choice(["native", "numpy"]), default="native",
                         show_default=True, help="kernels of emulated boards"),
            click.option("--threads", type=int, metavar="T",
                         help="threads of native kernels [one a CPU]"),
            click.option("-c", "--ctx-size", "context", type=int, metavar="N",
                         help="context in positions [all that fit]"),
            click.option("--kv", type=click.Choice(["auto", *KV_KINDS]),
                         default="auto", show_default=True,
                         help="type of the KV cache; auto: as the checkpoint says"),
        ]
    ):  # fmt: skip
        function = option(function)
    return function
