"""Python callbacks for the C library: called when a run is polled and after each token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import native


class TokenCallback:
    """Receives the tokens of a greedy loop. An exception of `on_token` ends the loop and is stored
    in `raised`, since it must not cross C frames."""

    __slots__ = ("on_token", "raised")

    def __init__(self, on_token: Callable[[int], bool | None]) -> None:
        self.on_token = on_token
        self.raised: BaseException | None = None


@cache
def bind() -> None:
    """Binds the functions to the extension, once per process."""
    ffi = native.ffi()

    def cancelled(context: Any) -> int:
        return int(ffi.from_handle(context).pressed)

    from_handle = ffi.from_handle

    def token(context: Any, value: int) -> int:
        callback = from_handle(context)
        try:
            return 1 if callback.on_token(value) else 0
        except BaseException as error:
            callback.raised = error
            return 1

    ffi.def_extern(name="lora_py_cancelled", error=1)(cancelled)
    ffi.def_extern(name="lora_py_token", error=1)(token)
